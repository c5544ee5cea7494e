#!/usr/bin/env bash
# Man pages and completion scripts of a built command, made from what it says of itself.
#   tools/man_pages.sh HANJI FOLDER    writes FOLDER/man/man1/hanji*.1 (by help2man: one for the command, one for each
#                                      verb), and the scripts for bash, zsh and fish where their packages put them
# Dates are SOURCE_DATE_EPOCH's, or those of the commit.
set -euo pipefail
hanji=$(realpath "$1") share=$2
PATH=$(dirname "$hanji"):$PATH
version=$(hanji --version)
: "${SOURCE_DATE_EPOCH:=$(git -C "$(dirname "${BASH_SOURCE[0]}")" log -1 --format=%ct 2>/dev/null || date +%s)}"
export SOURCE_DATE_EPOCH

# The page of the command or a verb, then those of its verbs, as its help lists them.
write_pages() {  # write_pages hanji [VERB...]
  local page=${*// /-} help verbs verb
  page=${page// /-}
  help=$("$@" --help)
  verbs=$(sed -n '/^Subcommands:/,/^$/s/^  \([a-z_]\+\) .*/\1/p' <<<"$help")
  help2man --no-info --section 1 --version-string "$version" --name "$(sed '/^Usage:/,$d' <<<"$help" | paste -sd ' ')" \
    --include <(see_also "$page" $verbs) "$*" |
    sed -e "s/^\.TH [^ ]* \"1\" \(\"[^\"]*\"\) \"[^\"]*\"/.TH ${page^^} \"1\" \1 \"hanji $version\"/" \
      -e "s/^$* \\\\- /$page \\\\- /" \
      -e 's/^\\fB\\-\(.\)\\fR,\\-\\-\([^ ]*\)/\\fB\\-\1\\fR, \\fB\\-\\-\2\\fR/' >"$share/man/man1/$page.1"
  for verb in $verbs; do write_pages "$@" "$verb"; done
}

see_also() {  # see_also PAGE [VERB...]
  local page=$1 pages
  shift
  pages=$([ "$page" = hanji ] || echo "${page%-*}"; [ $# -eq 0 ] || printf "$page-%s\n" "$@")
  printf '[SEE ALSO]\n'
  sed -e 's/.*/.BR & (1),/' -e '$s/,$//' <<<"$pages"
}

mkdir -p "$share"/{man/man1,bash-completion/completions,zsh/site-functions,fish/vendor_completions.d}
hanji completion bash >"$share/bash-completion/completions/hanji"
hanji completion zsh >"$share/zsh/site-functions/_hanji"
hanji completion fish >"$share/fish/vendor_completions.d/hanji.fish"
if ! command -v help2man >/dev/null; then
  printf 'no man pages: help2man is not installed (apt-get install help2man)\n' >&2
  rmdir "$share/man/man1" "$share/man"
  exit
fi
write_pages hanji
