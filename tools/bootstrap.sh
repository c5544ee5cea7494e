# ./dev bootstrap [COMMAND...]: the set-up on a bare Debian 12; sourced by dev, which provides the
# functions used here. Needs root. In a fresh root with nothing but Debian's minimal base, a clone
# of HEAD runs ./dev COMMAND (a short training and the tests of a floor when none is given). What
# this machine says about where packages come from holds inside as well (apt sources, PIP_*
# variables; HANJI_BOOTSTRAP_BIND names folders that they point to), and so does its compiler cache:
# the set-up is tested, not the compiler's patience.
[ "$(id -u)" -eq 0 ] || die "bootstrap makes a Debian root: run it as root, or try the two commands on a fresh machine"
debian_packages debootstrap git
clean_root=$(mktemp -d "${TMPDIR:-/tmp}/hanji-bootstrap.XXXXXX")
trap 'rm -rf --one-file-system "$clean_root"' EXIT

say "a bare Debian 12 in $clean_root"
quietly debootstrap debootstrap --variant=minbase --include=ca-certificates,git bookworm "$clean_root"
for settings in /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources /etc/pip.conf; do
  [ -e "$settings" ] && cp "$settings" "$clean_root$settings"
done
cp -L /etc/resolv.conf /etc/hosts "$clean_root/etc/"
cp -L /etc/ssl/certs/ca-certificates.crt "$clean_root/etc/ssl/certs/"
quietly clone git clone -q --no-hardlinks "$ROOT" "$clean_root/root/hanji"

ccache_folder=$(command -v ccache >/dev/null && ccache -k cache_dir || true)
export clean_root ccache_folder
in_clean_root() {
  unshare --mount --pid --ipc --fork --kill-child bash -euc '
    mount -t proc proc "$clean_root/proc"
    mount --rbind /dev "$clean_root/dev"
    mkdir -p "$clean_root/dev/shm" "$clean_root/root/.cache/ccache"
    for folder in ${HANJI_BOOTSTRAP_BIND:-}; do
      mkdir -p "$clean_root$folder"
      mount --rbind "$folder" "$clean_root$folder"
    done
    [ -z "$ccache_folder" ] || mount --bind "$ccache_folder" "$clean_root/root/.cache/ccache"
    settings=$(env | grep -E "^(PIP_|https?_proxy=)" || true)
    cd "$clean_root"
    exec chroot "$clean_root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
      LANG=C.UTF-8 $settings bash -c "cd /root/hanji && $1"' bash "$1"
}

if [ $# -gt 0 ]; then
  in_clean_root "./dev $*"
else
  in_clean_root "./dev train --steps 20 && ./dev test plan"
  say "a second run starts in under a second"
  in_clean_root "time ./dev hanji --version"
fi
say "the set-up works on a bare Debian 12"
