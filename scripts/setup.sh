#!/usr/bin/env bash
# Installs what the project needs, once: Debian/Ubuntu packages (as root) and a Python venv in .venv.
# Silent and without network when everything is there. Without root it names the packages to install.
set -euo pipefail
cd "$(dirname "$0")/.."

VENV=.venv
TORCH=2.13.0
stamp="$VENV/.installed-$(cat pyproject.toml scripts/setup.sh | sha256sum | cut -c1-16)"

missing=()
need() { # need PACKAGE PROBE...: the package is missing where the probe fails
    local package=$1
    shift
    "$@" >/dev/null 2>&1 || missing+=("$package")
}
compiles() { echo '#include <stdio.h>' | "$1" -E -x c -; }

has_fuzzer() { compgen -G "$(clang -print-resource-dir)/lib/*/libclang_rt.fuzzer*"; } # libFuzzer
install() { # what is missing
    ((${#missing[@]})) || return 0
    if [[ $(id -u) -ne 0 ]]; then
        echo "setup: these packages are missing; install them and run make again:" >&2
        echo "    sudo apt-get install ${missing[*]}" >&2
        exit 1
    fi
    echo "setup: installing ${missing[*]}"
    log=$(mktemp)
    if ! { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        "${missing[@]}"; } >"$log" 2>&1; then
        cat "$log" >&2
        echo "setup: apt-get could not install ${missing[*]}; the lines above say why" >&2
        exit 1
    fi
    rm -f "$log"
    missing=()
}

need gcc command -v gcc
need libc6-dev compiles gcc
need clang command -v clang
need clang-format command -v clang-format
need gcc-arm-none-eabi command -v arm-none-eabi-gcc
need libnewlib-arm-none-eabi compiles arm-none-eabi-gcc
need ccache command -v ccache
need python3-venv python3 -c 'import venv, ensurepip'
install
need "libclang-rt-$(clang -dumpversion | cut -d. -f1)-dev" has_fuzzer # a part of clang itself elsewhere
install

[[ -e $stamp ]] && exit 0

echo "setup: Python packages into $VENV (once, about two minutes)"
[[ -x $VENV/bin/python ]] || python3 -m venv "$VENV"
pip=("$VENV/bin/python" -m pip install --quiet --disable-pip-version-check)
if ! "$VENV/bin/python" -c 'import torch' 2>/dev/null; then
    # "+cpu" can only be the CPU build. Elsewhere than on Linux x86-64 the plain wheel is one already.
    wheel="torch==$TORCH+cpu"
    [[ $(uname -sm) = "Linux x86_64" ]] || wheel="torch==$TORCH"
    if ! "${pip[@]}" ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} "$wheel"; then
        echo "setup: pip finds no CPU build of torch $TORCH; run make again with TORCH_INDEX set to the address of" >&2
        echo "       PyTorch's CPU wheel index (pytorch.org, 'Get started', compute platform CPU)" >&2
        exit 1
    fi
fi
"${pip[@]}" -e ".[dev]"
rm -f "$VENV"/.installed-*
touch "$stamp"
