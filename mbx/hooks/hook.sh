#!/bin/sh
# mbx: a hook of an agent CLI, written by mbx setup: sh hook.sh CLI EVENT. That line never changes.
# It says something only when there is something for the session of its own process, and ends with
# status 0 whatever happens. Nothing is started to find out that there is nothing: only what the
# shell itself can do (read, test, case) is used up to there.
set -f
status=0
trap 'exit "$status"' EXIT
LC_ALL=C
cli=$1 event=$2 folder=@FOLDER@ harness=$1

decide() { # ends the script, or sets act and own
  case $cli in @OTHER_NAMES@ esac
  case "$cli $event" in
@EVENTS@
  *) exit ;;
  esac
  began=
  [ -r /proc/uptime ] && read -r began rest </proc/uptime

  # The process that runs this hook: the parent, or the one above the shells that it started.
  own='' p=$PPID steps=@STEPS@
  while [ "$steps" -gt 0 ]; do
    steps=$((steps - 1)) line=
    [ -r "/proc/$p/stat" ] && read -r line <"/proc/$p/stat" || break
    comm=${line#*\(}
    comm=${comm%\)*}
    set -- ${line##*\) }
    [ -n "${20}" ] || break
    own=$p-${20}
    [ -f "$folder/$own" ] && break
    case $comm in
    @SHELLS@) p=$2 ;;
    *) break ;;
    esac
  done
  case $act in
  guard | start) return ;;
  esac

  # Whether the daemon lives.
  beat='' now=${began%%.*}
  [ -f "$folder/@FRESH@" ] && read -r beat <"$folder/@FRESH@"
  case $beat in
  '' | *[!0-9]* | ????????????*) beat=-1 ;;
  esac
  if [ -n "$now" ] && { [ $((now - beat)) -gt @STALE@ ] || [ "$now" -lt "$beat" ] || [ "$beat" -lt 0 ]; }; then
    missed=0
    [ -d "$folder" ] || exit
    [ -f "$folder/@DOWN@" ] && read -r missed rest <"$folder/@DOWN@"
    case $missed in
    '' | *[!0-9]* | ????????????*) missed=0 ;;
    esac
    [ "$missed" -lt @MISSES@ ] && missed=$((missed + 1)) || missed=@MISSES@
    [ -h "$folder/@DOWN@" ] || printf '%s\n' "$missed" >"$folder/@DOWN@"
    exit
  fi

  [ "$act" != wait ] || return 0
  [ -n "$own" ] || { [ -r /proc/self/stat ] && exit; return; }
  [ -f "$folder/$own" ] || exit
  version='' its='' state='' newest=0 waking=0 called='' current='' told=0
  { read -r version its state name newest waking rest && read -r called; } <"$folder/$own" || exit
  [ "$version $its" = "@VERSION@ $harness" ] || exit
  [ "$act" = end ] && return
  if [ "$state" = shared ]; then
    [ "$newest" -gt 0 ] && return
    exit
  fi
  case $cli in
@VARIABLES@
  esac
  [ -z "$current" ] || [ "$current" = "$called" ] || return 0
  [ -f "$folder/$own@TOLD@" ] && read -r told rest <"$folder/$own@TOLD@"
  case $told in
  '' | *[!0-9]*) told=0 ;;
  esac
  [ "$act" = stop ] && newest=$waking
  [ "$newest" -gt "$told" ] || exit
}

call() {
  MBX_HOOK_BEGAN=$began MBX_HOOK_HOME=@HOME@ @PROGRAM@ "$event" --cli "$cli" --script \
    --folder "$folder" --own "$own"
}

decide 2>/dev/null
case "$cli $act" in
@STATUS@) # told no, or to go on, by the status and a text on standard error
  text=$(call 2>/dev/null)
  if [ $? -eq @BLOCKS@ ] && [ -n "$text" ]; then
    status=2
    printf '%s\n' "$text" >&2
  elif [ -n "$text" ]; then
    printf '%s\n' "$text"
  fi
  ;;
*) call 2>/dev/null ;;
esac
exit
