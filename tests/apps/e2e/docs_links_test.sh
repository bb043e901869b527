#!/usr/bin/env bash
# Every link between the pages of the project leads to a file, and to a heading if it names one. The head of each
# configuration prepares the data set that it reads. The program or the job scripts print the messages of the page for
# troubleshooting.
source "$(dirname "$0")/lib.sh" "$1"
# headings FILE: the anchors of its headings: lower case, punctuation dropped, blanks as hyphens
headings() { awk '/^```/ {code = !code} !code && /^#/' "$1" | sed -E 's/^#+ +//' | tr 'A-Z ' 'a-z-' | sed -E 's/[][`().,:;*/&?!+=<>"'"'"']//g'; }
links=0 messages=0
while IFS=: read -r page target; do
  file=${target%%#*} anchor=
  [[ "$target" != *'#'* ]] || anchor=${target#*#}
  path=$page
  [ -z "$file" ] || path=$(dirname "$page")/$file
  [ -e "$tree/$path" ] || fail "$page links to $target: there is no $path"
  [ -z "$anchor" ] || headings "$tree/$path" | grep -qxF -e "$anchor" || fail "$page links to $target: $path has no such heading"
  links=$((links + 1))
done < <(cd "$tree" && grep -oHE '\]\([^) ]+\)' README.md CHANGELOG.md data/README.md docs/*.md docs/*/*.md | sed -E 's/\]\(//; s/\)$//' | grep -vE ':(https?|mailto):')
[ "$links" -ge 50 ] || fail "only $links links found"
for config in "$tree"/configs/*.ini; do
  data=$(sed -n 's/^path = //p' "$config")
  grep -qE "^; .*--output $data$" "$config" || fail "$config reads $data, which no command in its head writes"
done
while IFS= read -r message; do
  grep -rqF -e "$message" "$tree/src" "$tree/slurm" || fail "docs/troubleshooting.md: nothing prints '$message'"
  messages=$((messages + 1))
done < <(sed -n '/^## Messages/,$p' "$tree/docs/troubleshooting.md" | grep '^|' | cut -d '|' -f 2 | grep -v 'Open MPI' | grep -oE '`[^`]+`' | tr -d '`')
[ "$messages" -ge 20 ] || fail "only $messages messages found"
passed "$links links, $messages messages"
