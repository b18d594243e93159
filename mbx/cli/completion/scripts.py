"""The completion scripts. Each asks `mbx` itself, with the words up to the cursor as arguments."""

from collections.abc import Mapping
from typing import Final

_BASH: Final = r"""# mbx completion for bash 4.4 or newer; .bashrc: eval "$(mbx completion bash)"
_mbx_words() { # into `typed`: the words up to the cursor, which bash parts at : = and @ too
    local rest=${COMP_LINE:0:COMP_POINT} piece at
    typed=()
    for ((at = 0; at <= COMP_CWORD; at++)); do
        if ((at == 0)) || [[ $rest == [[:space:]]* ]]; then
            typed+=('')
            rest=${rest#"${rest%%[![:space:]]*}"}
        fi
        piece=${COMP_WORDS[at]:0:${#rest}}
        typed[-1]+=$piece
        rest=${rest:${#piece}}
    done
}
_mbx_completion() {
    local -a typed values=() helps=()
    local word quote='' head='' type value help at line
    _mbx_words
    word=${typed[-1]}
    if [[ $word == [\"\']* ]]; then
        quote=${word:0:1} word=${word:1}
    else
        local breaks=${COMP_WORDBREAKS//[!:=@]/} # bash replaces only what stands behind these
        [[ -n $breaks ]] && head=${word%"${word##*[$breaks]}"}
        word=${word//\\/}
    fi
    typed[-1]=$word
    COMPREPLY=()
    while IFS=$'\t' read -r type value help; do
        value=${value#"$head"}
        if [[ $type != plain ]]; then
            [[ $type == dir ]] && type=directory
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -A "$type" -- "$value")
            return
        fi
        [[ -n $quote ]] || printf -v value %q "$value"
        value=${value//\\,/,} # no need to quote it
        values+=("$value") helps+=("$help")
    done < <(_MBX_COMPLETE=1 "${typed[@]}" 2>/dev/null)
    for at in "${!values[@]}"; do
        line=${values[at]}
        # A list shows what each means; what is put into the line (37: menu completion) does not.
        if ((${#values[@]} > 1 && COMP_TYPE != 37)) && [[ -n ${helps[at]} ]]; then
            line+="  (${helps[at]})"
            line=${line:0:${COLUMNS:-80} - 4}
        fi
        COMPREPLY+=("$line")
    done
}
complete -o nosort -F _mbx_completion mbx
"""

_ZSH: Final = r"""#compdef mbx
# mbx completion for zsh; .zshrc: eval "$(mbx completion zsh)"
_mbx() {
    local -a lines parts values shown
    local line paths=''
    lines=("${(@f)$(_MBX_COMPLETE=1 "${(Q)words[1]}" "${(@Q)words[2,CURRENT-1]}" \
        "${(Q)PREFIX}" 2>/dev/null)}")
    for line in $lines; do
        parts=("${(@ps:\t:)line}")
        case $parts[1] in
            plain)
                values+=("$parts[2]")
                shown+=("$parts[2]${parts[3]:+  $parts[3]}")
                ;;
            dir | file) paths=$parts[1] ;;
        esac
    done
    if [[ -n $paths ]]; then
        [[ $PREFIX == --*=* ]] && compset -P '--*='
        if [[ $paths == dir ]]; then _path_files -/; else _path_files; fi
        return
    fi
    (( $#values )) && compadd -V mbx -l -d shown -a values
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _mbx "$@"
else
    (( $+functions[compdef] )) || { autoload -Uz compinit && compinit -i }
    compdef _mbx mbx
fi
"""

_FISH: Final = r"""# mbx completion for fish; config.fish: mbx completion fish | source
function __mbx_complete
    set -l typed (commandline --tokenize --cut-at-cursor --current-process)
    set -l word (commandline --cut-at-cursor --current-token | string unescape)
    for line in (env _MBX_COMPLETE=1 $typed "$word" 2>/dev/null)
        set -l parts (string split --max 2 \t -- $line)
        switch $parts[1]
            case dir
                __fish_complete_directories "$parts[2]"
            case file
                __fish_complete_path "$parts[2]"
            case plain
                printf '%s\t%s\n' $parts[2] $parts[3]
        end
    end
end
complete --command mbx --no-files --keep-order --arguments '(__mbx_complete)'
"""

SCRIPTS: Final[Mapping[str, str]] = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
"""Shell -> the text that it evaluates."""
