#!/usr/bin/env bash
# Every command of the README's quick starts runs, in order.
source "$(dirname "$0")/pages.sh" "$1"
run_page README.md
passed "$(wc -l <page.sh) commands of the README"
