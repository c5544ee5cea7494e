# ./dev bootstrap [COMMAND...]: the set-up on a bare Debian 12; sourced by dev, which provides the
# functions used here. Needs root. In a fresh root with nothing but Debian's minimal base, a clone
# of HEAD runs ./dev COMMAND (a short training and the tests of a floor when none is given), with this machine's
# compiler cache: the set-up is tested, not the compiler's patience.
source tools/clean_root.sh
[ "$(id -u)" -eq 0 ] || die "bootstrap makes a Debian root: run it as root, or try the two commands on a fresh machine"
make_clean_root bookworm git
for settings in /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources; do
  [ ! -e "$settings" ] || cp "$settings" "$clean_root$settings"
done
quietly clone git clone -q --no-hardlinks "$ROOT" "$clean_root/root/hanji"

CACHE=$(command -v ccache >/dev/null && ccache -k cache_dir || true)
export CACHE
if [ $# -gt 0 ]; then
  in_clean_root "./dev $*"
else
  in_clean_root "./dev train --steps 20 && ./dev test plan"
  say "a second run starts in under a second"
  in_clean_root "time ./dev hanji --version"
fi
say "the set-up works on a bare Debian 12"
