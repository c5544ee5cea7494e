# ./dev bench [NAME] [ARGS]; sourced by dev, which provides the functions used here.
setup
debian_packages $DEBIAN_CHECK
python_check
configure dev -DHANJI_BENCH=ON
compile dev
names="all_reduce attention axial check_cost context first_step fsdp hosts lens_cost linear loader memory offload overlap passes pipeline prediction prepared_calls server stable step tensor threads"
if .venv/bin/python -c 'import hanji_c10d' 2>/dev/null; then
  names="$names c10d"  # once ./dev python has installed it
fi
case ${1:-} in
  --smoke) names=page ;;  # all of them, and the page that shows their rows
  ''|-*) ;;
  *) names=$1; shift ;;
esac
failed=
for name in $names; do
  printf '\n== %s\n' "$name"
  if [ -e "bench/$name.py" ]; then measure=".venv/bin/python bench/$name.py"; else measure=build/dev/bin/bench/$name; fi
  $measure "$@" || failed="$failed $name"
done
[ -z "$failed" ] || die "benchmarks that failed:$failed"
