#!/bin/sh
# run SCRIPT ARGUMENTS...: runs a peer's script with $LOCKSTEP_PYTHON, or else python3. Exit 77 (skipped) if there is none.
python=${LOCKSTEP_PYTHON:-python3}
command -v "$python" > /dev/null || { echo "skipped: no $python; LOCKSTEP_PYTHON names the interpreter to use"; exit 77; }
exec "$python" -W ignore "$@"
