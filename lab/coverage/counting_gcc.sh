#!/bin/sh
# Stands before gcc on PATH: what it compiles of the firmware counts its lines and branches.
#
# COUNTING_GCC     the compiler itself
# COUNTING_FOLDER  where the counts go, in a folder of their own for each command
#
# All builds are made alike, without sanitizers: another optimisation has other branches. execv becomes gcc's builtin,
# which writes the counts before the host board starts itself again.
case "$*" in
*--version*)
    "$COUNTING_GCC" "$@" || exit
    echo "that counts" # caches keep these libraries apart from the others
    exit ;;
esac
for word do
    shift
    case "$word" in
    -fsanitize=*) ;;
    *) set -- "$@" "$word" ;;
    esac
done
counts=$(mktemp -d "$COUNTING_FOLDER/XXXXXXXX") || exit
exec "$COUNTING_GCC" "$@" -O1 --coverage -fprofile-update=atomic -Dexecv=__builtin_execv -dumpdir "$counts/" \
    '-fprofile-filter-files=firmware/(src|include)/;examples/camera/'
