"""Public architectures through `convert --check`: is each answer complete, and are the sizes true?"""
