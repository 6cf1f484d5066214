# Sourced by the scripts: what is needed, installed where it is missing; one build folder.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=${GP_BUILD:-$root/build}
jobs=$(nproc)

say() { printf '== %s\n' "$*"; }
die() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }

# Debian 12 and Ubuntu 24.04 have all of these under the same names.
packages_build=(gcc libc6-dev cmake ninja-build pkg-config libzmq3-dev libmsgpack-dev libjansson-dev
    libprotobuf-c-dev protobuf-c-compiler libonnx-dev libcurl4-openssl-dev zlib1g-dev libdnnl-dev unzip
    python3 python3-venv ca-certificates)
packages_test=(clang clang-format libclang-rt-dev)

missing_packages() {
    local p
    for p in "$@"; do
        dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || printf '%s\n' "$p"
    done
}

# The packages named, by apt; asks for nothing, and says what to type where it may not install.
install_packages() {
    command -v apt-get >/dev/null || die "this is not a Debian or Ubuntu system; install what apt calls: $*"
    local missing
    mapfile -t missing < <(missing_packages "$@")
    [ ${#missing[@]} -eq 0 ] && return 0
    say "installing ${missing[*]}"
    local sudo=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || die "not root and no sudo; run: apt-get install ${missing[*]}"
        sudo=(sudo)
    fi
    "${sudo[@]}" apt-get update -qq || true
    DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null ||
        die "apt-get could not install: ${missing[*]}"
}

# A virtual environment under the build folder with the Python packages named; never the system's pip.
# Leaves its interpreter in $python; returns 1 where packages cannot be had.
make_venv() {
    local python3=/usr/bin/python3
    [ -x $python3 ] || python3=$(command -v python3) || return 1
    [ -x "$build/venv/bin/python" ] || "$python3" -m venv "$build/venv" || return 1
    python=$build/venv/bin/python
    local p need=()
    for p in "$@"; do
        "$python" -c "import importlib.metadata as m, sys; m.version(sys.argv[1])" "$p" 2>/dev/null || need+=("$p")
    done
    [ ${#need[@]} -eq 0 ] && return 0
    say "installing ${need[*]} into build/venv"
    "$build/venv/bin/pip" install -q --disable-pip-version-check "${need[@]}"
}

# configure PRESET [cmake arguments]: only when something that configuration reads has changed.
configure() {
    local preset=$1
    shift
    cmake --preset "$preset" -S "$root" -DGP_ONEDNN_ROOT="$build/onednn" "$@" >"$build/configure-$preset.log" 2>&1 || {
        tail -n 30 "$build/configure-$preset.log" >&2
        die "cmake failed; the whole output is in build/configure-$preset.log"
    }
}

compile() {
    local preset=$1
    shift
    ninja -C "$root/build/$preset" -j "$jobs" "$@" >"$build/compile-$preset.log" 2>&1 || {
        grep -E 'error|warning|FAILED' -A 5 "$build/compile-$preset.log" | tail -n 60 >&2
        die "the build failed; the whole output is in build/compile-$preset.log"
    }
}

# Data: what GRADPOOL_DATA names, else a download, else generated digits.  Sets data and data_words.
find_data() {
    local cli=$1
    if "$cli" data get fashion-mnist --only-local >/dev/null 2>&1; then
        data=fashion-mnist
        data_words="Fashion-MNIST, found under GRADPOOL_DATA or in the cache"
    elif "$cli" data get fashion-mnist; then
        data=fashion-mnist
        data_words="Fashion-MNIST, downloaded"
    else
        data=$build/digits
        data_words="generated digits (Fashion-MNIST is not here and could not be downloaded)"
        [ -e "$data/train-images-idx3-ubyte" ] || [ -e "$data/train-images-idx3-ubyte.gz" ] || "$cli" data make digits "$data"
    fi
}
