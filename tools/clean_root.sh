# A root with nothing but Debian's minimal base, for set-ups that must need nothing else; sourced where one is
# wanted, after dev, which provides the functions used here. Needs root. What this machine says about where packages come
# from holds inside as well (apt sources, PIP_* variables; HANJI_BOOTSTRAP_BIND names folders that they point to).

# Makes the root of a release in $clean_root, removed at the end of the script.
make_clean_root() {  # make_clean_root RELEASE PACKAGES_BY_COMMA
  local settings
  debian_packages debootstrap git
  clean_root=$(mktemp -d "${TMPDIR:-/tmp}/hanji-bootstrap.XXXXXX")
  trap 'rm -rf --one-file-system "$clean_root"' EXIT
  say "a bare Debian ($1) in $clean_root"
  quietly debootstrap debootstrap --variant=minbase --include="ca-certificates,$2" "$1" "$clean_root"
  for settings in /etc/pip.conf /etc/resolv.conf /etc/hosts /etc/ssl/certs/ca-certificates.crt; do
    [ ! -e "$settings" ] || cp -L "$settings" "$clean_root$settings"
  done
}

# Runs a command in the clone of the sources, or elsewhere, of the clean root. NETWORK=none leaves it the loopback alone;
# CACHE is the compiler's cache, if the clean root may use it.
in_clean_root() {  # [NETWORK=none] [CACHE=FOLDER] in_clean_root COMMAND
  export clean_root
  NETWORK=${NETWORK:-} CACHE=${CACHE:-} unshare --mount --pid --ipc ${NETWORK:+--net} --fork --kill-child bash -euc '
    [ -z "$NETWORK" ] || ip link set lo up
    mount -t proc proc "$clean_root/proc"
    mount --rbind /dev "$clean_root/dev"
    mkdir -p "$clean_root/dev/shm" "$clean_root/root/.cache/ccache"
    for folder in ${HANJI_BOOTSTRAP_BIND:-}; do
      mkdir -p "$clean_root$folder"
      mount --rbind "$folder" "$clean_root$folder"
    done
    [ -z "$CACHE" ] || mount --bind "$CACHE" "$clean_root/root/.cache/ccache"
    settings=$(env | grep -E "^(PIP_|https?_proxy=)" || true)
    cd "$clean_root"
    exec chroot "$clean_root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
      LANG=C.UTF-8 $settings bash -c "cd /root/hanji && $1"' bash "$1"
}
