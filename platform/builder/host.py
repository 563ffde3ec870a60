"""Builds the program for this machine with the compiler that CC names; `pio run -t exec` runs it."""

import os

from SCons.Script import AlwaysBuild, Default, DefaultEnvironment

env = DefaultEnvironment()
env.Append(LIBS=["m"])
if os.environ.get("CC"):
    env.Replace(CC=os.environ["CC"])

program = env.BuildProgram()
run = env.VerboseAction("$SOURCE $PROGRAM_ARGS", "Executing $SOURCE")
AlwaysBuild(env.Alias("exec", program, run))
Default(program)
