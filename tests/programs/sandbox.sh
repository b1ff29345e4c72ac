#!/bin/bash
# SPDX-License-Identifier: MIT
# A seccomp filter that refuses what only we ask for, as man-db has one. Not with load=lazy: without userfaultfd nobody
# could load pages on touch.
. "$(dirname "$0")/lib.sh"

t_stores() { run "$src/sandbox_load"; }
same stores
done_same
