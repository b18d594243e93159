#!/bin/sh
# mbx: one line for the screen of an agent CLI, written by mbx setup: sh statusline.sh CLI.
# It prints what the daemon wrote for the session of its own process, and nothing when that is old,
# not there, or not beyond doubt. Nothing is started.
set -f
trap 'exit 0' EXIT
exec 2>/dev/null
LC_ALL=C
cli=$1 folder=@FOLDER@
harness=$cli
case $cli in @OTHER_NAMES@ esac
case $cli in
@CLIENTS@) ;;
*) exit 0 ;;
esac
now='' beat=
[ -r /proc/uptime ] && read -r now rest </proc/uptime
now=${now%%.*}
[ -f "$folder/@FRESH@" ] && read -r beat <"$folder/@FRESH@"
case $now$beat in
'' | *[!0-9]* | ????????????????????*) exit 0 ;;
esac
[ -n "$beat" ] && [ $((now - beat)) -le @STALE@ ] && [ "$now" -ge "$beat" ] || exit 0
own='' p=$PPID steps=@STEPS@
while [ "$steps" -gt 0 ]; do
  steps=$((steps - 1)) line=
  [ -r "/proc/$p/stat" ] || exit 0
  read -r line <"/proc/$p/stat" || exit 0
  comm=${line#*\(}
  comm=${comm%\)*}
  set -- ${line##*\) }
  [ -n "${20}" ] || exit 0
  own=$p-${20}
  [ -f "$folder/$own" ] && break
  case $comm in
  @SHELLS@) p=$2 ;;
  *) exit 0 ;;
  esac
done
[ -f "$folder/$own" ] || exit 0
{ read -r version its rest && read -r called && read -r text; } <"$folder/$own" || exit 0
[ "$version $its" = "@VERSION@ $harness" ] && [ -n "$text" ] && printf '%s\n' "$text"
exit 0
