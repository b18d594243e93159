#!/bin/sh
# mbx: a hook of an agent CLI, written by mbx setup: sh hook.sh CLI EVENT. That line never changes.
# It says something only when there is something for the session of its own process, and ends with
# status 0 whatever happens. Nothing is started to find out that there is nothing: only what the
# shell itself can do (read, test, case) is used up to there.
set -f
status=0
trap 'exit "$status"' EXIT
LC_ALL=C
cli=$1 event=$2 folder=@FOLDER@ harness=$1 begun='' newline='
'

decide() { # ends the script, or sets act and own
  case $cli in @OTHER_NAMES@ esac
  case "$cli $event" in
@EVENTS@
  *) exit ;;
  esac
  began=
  [ -r /proc/uptime ] && read -r began rest </proc/uptime
  own=''
  if [ "$act" = guard ]; then
    may_concern_us || exit
    return
  fi

  # The process that runs this hook: the parent, or the one above the shells that it started.
  p=$PPID steps=@STEPS@
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
  [ "$act" = start ] && return

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

# Whether a tool that is about to be used may write into mbx's folders. "No" only where that is
# sure: a whole event was read, and each name of a file in it was followed to where it leads. What
# is written in an odd way, is not there yet, or leads to us, is judged by Python.
may_concern_us() {
  [ -r /proc/uptime ] && ! [ -t 0 ] || return 0
  # One read of what is there: a client may keep its end open. It may also not have written yet.
  begun=$(dd bs=@READ@ count=1 iflag=nonblock) || begun=$(dd bs=@READ@ count=1 iflag=nonblock)
  case $begun in
  *'\u'* | *'*** '* | *'+++ '*) return 0 ;; # an escape may stand for any letter; a patch
  '{'*'}') ;;
  *) return 0 ;;
  esac
  IFS='"'
  set -- $begun # what stands between texts, and texts, by turns
  unset IFS
  [ $# -le @PARTS@ ] || return 0
  is_text='' text='' key='' depth=0 cwd='' cwds=0 paths='' relative='' brace='[{}]'
  for part; do
    if [ -z "$is_text" ]; then
      is_text=1 key=''
      case $text in
      @FIELDS@) case $part in *'['*) return 0 ;; esac ;; # several files
      esac
      case $part in
      *[!:,[:space:]]*) count_braces || return 0 ;;
      *:*) key=$text ;;
      esac
      text=''
      continue
    fi
    text=$text$part
    case $part in
    *'\\') return 0 ;;
    *'\') continue ;; # the quote belongs to the text
    esac
    is_text=''
    case $key in
    tool_input | toolArgs) return 0 ;; # a text that holds the arguments
    @FIELDS@)
      case $text in
      '' | '~'* | *'\'*) return 0 ;;
      /*) ;;
      *) relative=1 ;;
      esac
      paths=$paths$text$newline
      ;;
    cwd) [ "$depth" -eq 1 ] && cwd=$text ;;
    esac
    [ "$depth$text" = 1cwd ] && cwds=$((cwds + 1))
  done
  [ "$depth" -eq 0 ] || return 0
  [ -n "$paths" ] || return 1
  [ -z "$relative" ] || case $cwds$cwd in
  *'\'*) return 0 ;;
  1/*) ;;
  *) return 0 ;;
  esac
  leads_to_us
}

count_braces() { # in what stands between two texts; what has not come to its end has some open
  [ ${#part} -le @GAP@ ] || return 1
  while :; do
    case $part in
    *[{}]*) ;;
    *) return 0 ;;
    esac
    rest=${part#*$brace}
    case ${part%"$rest"} in
    *'{') depth=$((depth + 1)) ;;
    *) depth=$((depth - 1)) ;;
    esac
    part=$rest
  done
}

leads_to_us() { # any of the paths, with links followed
  cd -P -- @HOME@ && home=$PWD && cd -P -- @RUN@ && run=$PWD || return 0
  IFS=$newline
  set -- $paths
  unset IFS
  for path; do
    [ "${path#/}" != "$path" ] || path=$cwd/$path
    name=${path##*/} place=${path%/*}
    [ -h "$path" ] && return 0
    cd -P -- "${place:-/}" || return 0
    case ${PWD%/}/$name/ in
    "$home"/* | "$run"/*) return 0 ;;
    esac
  done
  return 1
}

call() {
  MBX_HOOK_BEGAN=$began MBX_HOOK_BEGUN=$begun MBX_HOOK_HOME=@HOME@ @PROGRAM@ "$event" \
    --cli "$cli" --script --folder "$folder" --own "$own"
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
