"""The two files of one model in the library: NAME.h for the user's program, NAME.c for the linker."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from microtrain.base.errors import Error, short
from microtrain.base.paths import FIRMWARE
from microtrain.base.plan import FIXED, TFLITE
from microtrain.base.reading import reading
from microtrain.base.units import parse

from .sources import FOLDER, PREFIX, PRELUDE

NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")
WORDS = {"auto", "class", "delete", "double", "goto", "main", "new", "private", "public", "register", "this"}
WORDS |= {
    "memcpy",
    "memmove",
    "memset",
    "microtrain",
    "signed",
    "union",
    "volatile",
    "long",
    "short",
}  # of C and C++, in no source of ours
SIZES = ("HEIGHT", "WIDTH", "CHANNELS", "CLASSES", "ARENA_BYTES", "TRAINABLE_BYTES")
PARTS = ("model.h", "model_weights.c", "model_library.inc")
SHARED = "_shared"  # behind the model's name: what a fleet shares of it
NO_CODE = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)  # comments and strings
PIECES = re.compile(r"^/\* Pieces: .*?^#endif\n", re.MULTILINE | re.DOTALL)
BOUND = re.compile(
    r"^#(?:el)?if .* /\* (.*) \*/\n#define MODEL_PIECE_LEAST (\d+) /\* (.*) \*/\n"
    r"#define MODEL_PIECE_MOST (\d+)\n#define MODEL_PIECE_ONCE (\d+)\n"
    r"#define MODEL_PIECE_RATE (\d+).*\n"
    r"(?:#define MODEL_RECORD_ONCE (\d+)\n#define MODEL_RECORD_EACH (\d+).*\n)?"
    r"(?:#define MODEL_SLIDE_INSTRUCTIONS (\d+)\n)?",
    re.MULTILINE,
)
WORK, RECORDS = 30_000, 100  # of the pieces that the terminal speaks of
DEFINE = re.compile(r"^#define (MODEL_\w+) (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Generated:
    """What a conversion wrote. texts: PARTS; defines: of model.h."""

    texts: dict[str, str]
    defines: dict[str, str]


def headers() -> list[str]:
    """Those of the engine that a model includes."""
    kernels = sorted(path.name for path in (FIRMWARE / "include/kernels").glob("*.h"))
    return [PRELUDE, *kernels, "model_api.h", "model_table.h", "model_weights.h"]


def words(texts: Iterable[str]) -> set[str]:
    """What no model can be called: the words of C and of these sources."""
    plain = (NO_CODE.sub(" ", text) for text in texts)
    return WORDS.union(*(re.findall(r"[a-z]\w*", text) for text in plain))


def checked_name(name: str, taken: Collection[str] = WORDS) -> str:
    """The name of a model in C. Error where it can be none."""
    if not NAME.fullmatch(name) or name in taken or name.startswith(PREFIX) or name.endswith(SHARED):
        raise Error(
            f"{short(name)} is no name for a model: small letters, digits and _, a letter first, "
            "no word that C or the engine uses, as in garden."
        )
    return name


def name_of(text: str, taken: Collection[str]) -> str:
    """A name made of what the model is called."""
    plain = re.sub(r"\W+", "_", text.lower(), flags=re.ASCII).strip("_")[:40]
    return plain if NAME.fullmatch(plain) and plain not in taken else f"model_{plain}".rstrip("_")[:40]


def title(generated: Generated) -> str:
    """What the conversion calls the model."""
    found = re.search(r'^    \.name = "(.*)",$', generated.texts["model_library.inc"], re.MULTILINE)
    return found[1] if found else "model"


def read(folder: Path, api_version: int) -> Generated:
    """What a conversion wrote into a folder. Error where it is not all there, or of another version."""
    texts = {}
    for name in PARTS:
        texts[name] = _text(folder / name)
    header = texts["model.h"]
    if f"#if MODEL_API_VERSION != {api_version}\n" not in header:
        raise Error(f"{folder} was converted by another version: run `microtrain convert` again.")
    defines = dict(DEFINE.findall(header))
    missing = [f"MODEL_{size}" for size in SIZES if f"MODEL_{size}" not in defines]
    if missing:
        raise Error(f"{folder / 'model.h'} lacks {', '.join(missing)}: run `microtrain convert` again.")
    _same_conversion(folder, texts, defines.get("MODEL_ID", ""))
    other = next((choice for choice in (FIXED, TFLITE) if f"MODEL_{choice.upper()}" in defines), None)
    if other:
        raise Error(
            f"the library requantizes in float32, and {folder} holds a model of --requantize {other}: "
            "convert it with --requantize float."
        )
    return Generated(texts, defines)


def _text(path: Path) -> str:
    with reading(Error, lambda why: f"{path} cannot be read ({why}): run `microtrain convert` again."):
        return path.read_text(encoding="utf-8")


def _same_conversion(folder: Path, texts: dict[str, str], model_id: str) -> None:
    for name in PARTS[1:]:
        if f"#if MODEL_ID != {model_id}\n" not in texts[name]:
            raise Error(f"{name} and model.h in {folder} are of different conversions: convert again.")


def header(name: str, generated: Generated) -> str:
    """NAME.h: the model, and its sizes as constants."""
    big = name.upper()
    sizes = "\n".join(f"#define {big}_{size} {generated.defines[f'MODEL_{size}']}" for size in SIZES)
    return f"""{_banner(generated, f"The model {name}, for #include.")}
#ifndef {big}_H
#define {big}_H

#include "microtrain_fleet.h"

{sizes}
#define {big}_HELD_BYTES {_held_bytes(generated)}
#define {big}_ROW_BYTES ({big}_WIDTH * {big}_CHANNELS)
#define {big}_INPUT_BYTES ({big}_HEIGHT * {big}_ROW_BYTES)
{_gate(big, generated)}{_records(big, generated)}
{_pieces(big, generated)}{_units(name, generated)}#ifdef __cplusplus
extern "C" {{
#endif

extern const struct microtrain_model {name};
extern const struct microtrain_shared {name}{SHARED};

#ifdef __cplusplus
}}
#endif

#endif
"""


def _gate(big: str, generated: Generated) -> str:
    """The loss below which a step learns nothing; nothing where every step is taken."""
    gate = generated.defines.get("MODEL_GATE")
    return "" if gate is None else f"#define {big}_GATE {gate} /* loss below which a step learns nothing */\n"


def _units(name: str, generated: Generated) -> str:
    """How numbers become the bytes of an input, as Units.bytes() does it; nothing for pixels."""
    said = generated.defines.get("MODEL_UNITS")
    if said is None:
        return ""
    units = parse(said.strip('"'))
    each = len(units.scale) > 1
    values = {"inverse": units.inverse, "low": np.array(units.low, np.float32)}
    tables = "".join(
        f"    static const float {key}[] = {{{', '.join(f'{v:.9e}f' for v in numbers)}}};\n"
        for key, numbers in values.items()
    )
    at = "channel" if each else "0"
    return f"""\
/* A number in the units that the model was trained on, {units.low[0]:.6g} to {units.high[0]:.6g}{
        " in the first channel" if each else ""
    }, as a byte of its input. Others are clipped. */
static inline uint8_t {name}_byte(float number{", uint32_t channel" if each else ""})
{{
{tables}    float byte = (number - low[{at}]) * inverse[{at}] + 0.5f;
    return (uint8_t)(byte < 0.0f ? 0.0f : byte < 256.0f ? byte : 255.0f);
}}

"""


def _pieces(big: str, generated: Generated) -> str:
    """How long a piece of microtrain_step() is at most: constants of each core, and what is made of them."""
    found = PIECES.search(generated.texts["model_library.inc"])
    if found is None:
        return ""
    lines = found[0].partition("\n")[2].replace("MODEL_", f"{big}_")
    return f"""\
/* Pieces of microtrain_step, and what a begin takes: instructions at most, on the core that gcc compiles for,
 * with -O2 or -Os and without interrupts (docs/embed.md). {big}_PIECE_LEAST is that of the longest unit of
 * work, which no number makes shorter; {big}_PIECE_MOST of the longest step, done whole.
 * {big}_SLIDE_INSTRUCTIONS: of microtrain_slide, which is no piece. */
{lines}
#ifdef {big}_PIECE_LEAST
/* Of pieces of so much work: the number that microtrain_step is given. */
#define {big}_PIECE_INSTRUCTIONS(work) \\
    ({big}_PIECE_OF(work) > {big}_PIECE_MOST    ? {big}_PIECE_MOST  \\
     : {big}_PIECE_OF(work) < {big}_PIECE_LEAST ? {big}_PIECE_LEAST \\
                                                : {big}_PIECE_OF(work))
#define {big}_PIECE_OF(work) ({big}_PIECE_ONCE + 1ull + (work)*1ull * {big}_PIECE_RATE / 1000)
/* The number for pieces of so many instructions at most, which must not be less than {big}_PIECE_LEAST. */
#define {big}_PIECE_WORK(instructions) \\
    ((instructions) >= {big}_PIECE_MOST ? 0xffffffffu : {big}_WORK_OF(instructions))
#define {big}_WORK_OF(instructions) \\
    ((uint32_t)(((instructions)-1ull - {big}_PIECE_ONCE) * 1000 / {big}_PIECE_RATE))
#endif
{_record_pieces(big) if "_RECORD_ONCE" in lines else ""}
"""


def _record_pieces(big: str) -> str:
    return f"""\
#ifdef {big}_RECORD_ONCE
/* Of microtrain_recall_begin and of the piece that makes a record, with memory for n records: they
 * look for a place among them, and can be longer than {big}_PIECE_LEAST. */
#define {big}_RECORD_INSTRUCTIONS(n) ({big}_RECORD_ONCE + 1ull + (n)*1ull * {big}_RECORD_EACH / 1000)
#endif
"""


def pieces(generated: Generated) -> list[str]:
    """What the terminal says of them, a line for each core."""
    lines = []
    for found in BOUND.findall(generated.texts["model_library.inc"]):
        core, least, longest, most, once, rate, own, each, slide = found
        said = min(int(most), max(int(least), _at(once, rate, WORK)))
        line = f"{core}: {said:,}, and no less than {int(least):,} ({longest})"
        line += f"; where a record is made or drawn of {RECORDS}: {_at(own, each, RECORDS):,}" if own else ""
        lines.append(line + (f"; microtrain_slide: {int(slide):,}" if slide else ""))
    return lines


def _at(once: str, thousandths: str, count: int) -> int:
    """What the header's macros say."""
    return int(once) + 1 + count * int(thousandths) // 1000


def _records(big: str, generated: Generated) -> str:
    """How much memory a number of records takes; nothing where the model has none."""
    from microtrain.convert.memory.replay import CLASS_BYTES, LABEL_BYTES

    size = generated.defines.get("MODEL_RECORD_BYTES")
    if size is None:
        return ""
    return f"""/* of n records, at least one for each class: microtrain_remember */
#define {big}_RECORDS_BYTES(n) ({CLASS_BYTES}u * {big}_CLASSES + (n) * ({LABEL_BYTES}u + {size}u))
"""


def _held_bytes(generated: Generated) -> str:
    """Of what a board of a fleet holds back."""
    found = re.search(r"^#define MODEL_HELD_BYTES (\d+)$", generated.texts["model_library.inc"], re.MULTILINE)
    assert found is not None
    return found[1]


def source(name: str, generated: Generated) -> str:
    """NAME.c: tables, steps and the descriptor; all but the last is static."""
    weights = generated.texts["model_weights.c"]
    tables = weights[weights.index("#endif\n") + len("#endif\n") :].strip("\n")
    tables = re.sub(
        r"^(?=MODEL_WEIGHTS |MODEL_WEIGHTS_OUTSIDE |const )", "static ", tables, flags=re.MULTILINE
    )
    library = generated.texts["model_library.inc"]
    steps = PIECES.sub("", library[library.index("#endif\n") + len("#endif\n") :]).strip("\n")
    defines = "\n".join(f"#define {key} {value}" for key, value in generated.defines.items())
    included = "".join(f'#include "{FOLDER}/{file}"\n' for file in headers())
    return f"""{_banner(generated, f"The model {name}: tables and steps.")}
#include "{FOLDER}/{PRELUDE}"

#include <stddef.h>
#include <string.h>

#include "{name}.h"
{included}
#define MODEL {name}
#define MODEL_SHARED {name}{SHARED}
{defines}

{tables}

{steps}
"""


def _banner(generated: Generated, what: str) -> str:
    """The comment of model.h with another first line."""
    first, _, rest = generated.texts["model.h"].partition("*/")[0].partition("\n")
    assert first.startswith("/* ")
    return f"/* {what}\n{rest}*/"
