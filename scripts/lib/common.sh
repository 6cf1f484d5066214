# Functions shared by the scripts: install packages, configure, compile.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$root/build
jobs=$(nproc)
# Detect a missing network within seconds.
export PIP_DEFAULT_TIMEOUT=${PIP_DEFAULT_TIMEOUT:-20} PIP_RETRIES=${PIP_RETRIES:-1}

say() { printf '== %s\n' "$*"; }
die() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }

# Package names on Debian 12 and Ubuntu 24.04; a|b: the first that exists.
packages_build=(gcc libc6-dev cmake ninja-build pkg-config libzmq3-dev "libmsgpack-c-dev|libmsgpack-dev"
    libjansson-dev libprotobuf-c-dev protobuf-c-compiler libonnx-dev libcurl4-openssl-dev libsqlite3-dev zlib1g-dev libmd-dev
    libjpeg-dev libpng-dev python3 python3-venv ca-certificates)
packages_slurm=(slurmctld slurmd slurm-client munge)
packages_test=(clang-format g++ patch systemd abigail-tools man-db tmux bash-completion zsh fish "${packages_slurm[@]}"
    openssh-server openssh-client)
packages_fuzz=(clang libclang-rt-dev libomp-dev)

is_installed() { dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q 'ok installed'; }

# missing_packages PACKAGE...: print the packages without an installed alternative.
missing_packages() {
    local names name
    for names in "$@"; do
        for name in ${names//|/ }; do
            is_installed "$name" && continue 2
        done
        printf '%s\n' "$names"
    done
}

# known_packages PACKAGE...: replace each a|b by the first that apt knows.
known_packages() {
    local names name
    for names in "$@"; do
        for name in ${names//|/ }; do
            apt-cache show "$name" >/dev/null 2>&1 && break
        done
        printf '%s\n' "$name"
    done
}

# install_packages PACKAGE...: install packages with apt, without questions. Without permission, print the command to run.
install_packages() {
    command -v apt-get >/dev/null || die "apt-get not found; install the equivalents of these Debian packages: $*"
    local missing sudo=()
    mapfile -t missing < <(missing_packages "$@")
    [ ${#missing[@]} -eq 0 ] && return 0
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || die "no root permission and no sudo; run as root: apt-get install ${missing[*]%%|*}"
        sudo=(sudo)
        [ -t 0 ] || sudo+=(-n)
    fi
    "${sudo[@]}" apt-get update -qq || true
    mapfile -t missing < <(known_packages "${missing[@]}")
    say "installing ${missing[*]}"
    # Packages with daemons, such as Slurm and sshd, start them unless this file forbids it.
    local policy=/usr/sbin/policy-rc.d created=false failed=false
    if [ ! -e $policy ]; then
        printf '#!/bin/sh\nexit 101\n' | "${sudo[@]}" tee $policy >/dev/null
        "${sudo[@]}" chmod +x $policy
        created=true
    fi
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" \
        >/dev/null </dev/null || failed=true
    ! $created || "${sudo[@]}" rm -f $policy
    ! $failed || die "apt-get could not install: ${missing[*]}"
}

# make_venv PACKAGE...: create a virtual environment in the build folder with these Python packages; never use the system's pip.
# Set $python to the interpreter. Return 1 if packages are not available.
make_venv() {
    local python3=/usr/bin/python3 package need=()
    [ -x $python3 ] || python3=$(command -v python3) || return 1
    [ -x "$build/venv/bin/pip" ] || "$python3" -m venv "$build/venv" || return 1
    python=$build/venv/bin/python
    for package in "$@"; do
        "$python" -c "import importlib.metadata as m, sys; m.version(sys.argv[1])" "$package" 2>/dev/null ||
            need+=("$package")
    done
    [ ${#need[@]} -eq 0 ] && return 0
    say "installing ${need[*]} into build/venv"
    "$build/venv/bin/pip" install -q --disable-pip-version-check "${need[@]}"
}

# configure PRESET [cmake arguments]: run cmake; print the end of the output on failure.
configure() {
    local preset=$1 log=$build/configure-$1.log
    shift
    if command -v ccache >/dev/null; then
        export CMAKE_C_COMPILER_LAUNCHER=ccache
    fi
    cmake --preset "$preset" -S "$root" -DGP_ONEDNN_ROOT="$build/onednn" "$@" >"$log" 2>&1 || {
        tail -n 30 "$log" >&2
        die "cmake failed; see the full output in ${log#"$root"/}"
    }
}

# show_build FILE: copy ninja's output to a file. On a terminal, show progress and the remaining time unless GP_BUILD_QUIET
# is set.
show_build() {
    local line begin=$SECONDS done total left terminal=false
    if [ -t 2 ] && [ -z "${GP_BUILD_QUIET:-}" ]; then
        terminal=true
    fi
    while IFS= read -r line; do
        printf '%s\n' "$line"
        if $terminal && [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]]; then
            done=${BASH_REMATCH[1]} total=${BASH_REMATCH[2]}
            left=$(((SECONDS - begin) * (total - done) / done))
            printf '\r   %d of %d files (%d %%), %d s left \033[K' "$done" "$total" $((100 * done / total)) "$left" >&2
        fi
    done >"$1"
    ! $terminal || printf '\r\033[K' >&2
}

# compile PRESET [targets]: print warnings only, unless the build fails.
compile() {
    local preset=$1 log=$build/compile-$1.log
    shift
    NINJA_STATUS='[%f/%t] ' ninja -C "$build/$preset" -j "$jobs" "$@" 2>&1 | show_build "$log" || {
        grep -E 'error|warning|FAILED' -A 5 "$log" | tail -n 60 >&2 || tail -n 30 "$log" >&2
        die "the build failed; see the full output in ${log#"$root"/}"
    }
    grep 'warning: ' "$log" | sort -u || true
}

# Unpack the programs of Prometheus into the build folder. The Debian package would also start a service.
install_prometheus() {
    say "unpacking prometheus into build/prometheus"
    (cd "$build" && apt-get download prometheus >/dev/null 2>&1 && dpkg -x prometheus_*.deb prometheus && rm prometheus_*.deb)
}
