# Functions shared by tests/fresh/run and tests/package/run: a bare Debian 12 in a chroot, and a mount and process namespace that
# ends with the script.
export LC_ALL=C.UTF-8

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
suite=bookworm
carried=(http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY PIP_CERT PIP_INDEX_URL PIP_EXTRA_INDEX_URL
    PIP_TRUSTED_HOST PIP_DEFAULT_TIMEOUT SSL_CERT_FILE CURL_CA_BUNDLE)

die() { printf '%s: %s\n' "${0#"$root"/}" "$*" >&2; exit 1; }

# ---- in the namespace: $work and $chroot are set ----

# inside COMMAND: run a command in the chroot with a clean environment, in the folder $clone if it exists. With user=NAME, run it as
# that user.
inside() {
    local as=${user:-root} name home=/root paths=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin environment
    if [ "$as" != root ]; then
        home=/home/$as paths=/usr/local/bin:/usr/bin:/bin
    fi
    environment=(HOME="$home" USER="$as" TERM="${TERM:-dumb}" LANG=C.UTF-8 PATH="$paths")
    for name in "${carried[@]}"; do
        [ -z "${!name:-}" ] || environment+=("$name=${!name}")
    done
    [ ! -d "$chroot/data" ] || environment+=(GRADPOOL_DATA=/data)
    env -i "${environment[@]}" "$(command -v chroot)" --userspec="$as" "$chroot" /bin/bash -c "cd ${clone:-/} 2>/dev/null; $1" </dev/null
}

# step NAME COMMAND: run a command, log its output and add a table row.
step() {
    local name=$1 code=0 begin=$SECONDS
    shift
    printf '== %s\n' "$name"
    "$@" > >(tee "$work/$name.log") 2>&1 || code=$?
    printf '| %s | %d | %d |\n' "$name" $((SECONDS - begin)) "$code" >>"$work/steps"
    printf '== %s: exit %d after %d s\n' "$name" "$code" $((SECONDS - begin))
    [ "$code" -eq 0 ] || failed=1
    return "$code"
}

bootstrap() {
    debootstrap --variant=minbase "$suite" "$chroot" "$mirror" | sed '/^I: \(Retrieving\|Validating\|Extracting\|Unpacking\|Configuring\)/d'
    echo force-unsafe-io >"$chroot/etc/dpkg/dpkg.cfg.d/unsafe-io" # dpkg syncs each file; a crash ends the chroot anyway
}

# Copy the package access of this machine.
carry_configuration() {
    local file
    cp /etc/resolv.conf "$chroot/etc/resolv.conf"
    rm -f "$chroot/etc/apt/sources.list"
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
        [ ! -s "$file" ] || cp "$file" "$chroot${file}"
    done
    cp /usr/share/keyrings/debian-archive-* "$chroot/usr/share/keyrings/"
    for file in $(grep -lsEi '^ *Acquire::' /etc/apt/apt.conf /etc/apt/apt.conf.d/*); do
        cp "$file" "$chroot$file"
    done
    [ ! -f /etc/pip.conf ] || cp /etc/pip.conf "$chroot/etc/pip.conf"
    if compgen -G '/usr/local/share/ca-certificates/*.crt' >/dev/null; then
        mkdir -p "$chroot/usr/local/share/ca-certificates"
        cp /usr/local/share/ca-certificates/*.crt "$chroot/usr/local/share/ca-certificates/"
    fi
}

mount_all() {
    mount -t proc proc "$chroot/proc"
    mount --rbind /dev "$chroot/dev"
    mount -t tmpfs -o nosuid,nodev tmpfs "$chroot/dev/shm"
    mount -t tmpfs -o nosuid,nodev,mode=755 tmpfs "$chroot/run"
    if [ -n "${GRADPOOL_DATA:-}" ]; then
        mkdir "$chroot/data"
        mount --bind "$GRADPOOL_DATA" "$chroot/data"
        mount -o remount,bind,ro "$chroot/data"
    fi
}

# Print the processes in the chroot that outlived the command; none are expected.
left_behind() {
    local link pid
    for link in /proc/[0-9]*/root; do
        [ "$(readlink "$link" 2>/dev/null)" = "$chroot" ] || continue
        pid=${link#/proc/}
        tr '\0' ' ' <"/proc/${pid%/root}/cmdline" && echo
    done
}

# ---- outside ----

# in_namespace: call this script again in its own mount and process namespace, with $GP_FRESH_WORK set to a new folder $work.
# Return the exit code of that call. The folder is removed at exit unless $keep is true.
in_namespace() {
    local code=0 program
    [ "$(id -u)" -eq 0 ] || die "must run as root: creates a chroot and mounts"
    for program in debootstrap unshare git; do
        command -v $program >/dev/null || die "$program not found; install it"
    done
    GP_FRESH_MIRROR=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
        grep -Eo 'https?://[^ ]*/debian/?( |$)' | head -n 1) || true
    [ -n "$GP_FRESH_MIRROR" ] || die "no Debian mirror in /etc/apt: run this on Debian"
    work=$(mktemp -d "${TMPDIR:-/var/tmp}/gradpool-fresh.XXXXXX")
    GP_FRESH_WORK=$work GP_FRESH_COMMIT=$(git -C "$root" rev-parse HEAD)
    export GP_FRESH_WORK GP_FRESH_COMMIT GP_FRESH_MIRROR
    child=
    trap end_namespace EXIT
    trap 'exit 130' INT TERM
    # Run in the background, so that the shell handles Ctrl-C at once; inside, the default signal actions apply.
    env --default-signal=INT,QUIT unshare --mount --uts --propagation private --pid --fork --kill-child --mount-proc \
        "$0" </dev/null &
    child=$!
    wait "$child" || code=$?
    child=
    return $code
}

end_namespace() {
    # This ends all processes in the namespace; its mounts are invisible outside.
    [ -z "$child" ] || { kill -KILL "$child" && wait "$child"; } 2>/dev/null || true
    if $keep; then
        printf 'kept: %s\n' "$work"
    else
        rm -rf --one-file-system "$work" || { sleep 1; rm -rf --one-file-system "$work"; }
    fi
}

# In the namespace: set the variables of the functions above.
if [ "${GP_FRESH_WORK:-}" ]; then
    work=$GP_FRESH_WORK chroot=$GP_FRESH_WORK/chroot commit=$GP_FRESH_COMMIT mirror=$GP_FRESH_MIRROR
fi
