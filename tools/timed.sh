#!/usr/bin/env bash
# timed.sh COMPILER...: runs it in a build folder, whose cpu_seconds gets a line: user, system, output.
command="$*"
output=${command##* -o }
TIMEFORMAT="%U %S ${output%% *}"
{ time "$@" 2>&3; } 3>&2 2>>cpu_seconds
