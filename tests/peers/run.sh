#!/bin/sh
# run SCRIPT ARGUMENTS...: runs a script with $LOCKSTEP_PYTHON, or else python3. Exit code 77 (skipped) where there is
# no such interpreter, or where it lacks a package.
python=${LOCKSTEP_PYTHON:-python3}
command -v "$python" > /dev/null || { echo "skipped: no $python; LOCKSTEP_PYTHON names the interpreter to use"; exit 77; }
exec "$python" -W ignore "$(dirname "$0")/run.py" "$@"
