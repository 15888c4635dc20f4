# shellcheck shell=bash
# Carries out a Dockerfile's steps in folders, where there is no Docker. To be sourced after
# scripts/debian_root.sh. Of the language only what this project's Dockerfile uses; anything else is an
# error. `COPY . .` takes what is committed (HEAD).
#
#   run_dockerfile Dockerfile            # each stage becomes $workspace/stage-NAME or stage-NUMBER
#   run_image launch configs/smoke.txtpb # the entry point of the last stage, with these arguments

: "${workspace?scripts/debian_root.sh comes first}"
stage=            # the folder of the current stage
stage_user=root
stage_folder=/
entry_point=()

run_dockerfile() {
  local line instruction rest count=0
  while read -r line; do  # a backslash at the end of a line joins it with the next
    [[ -n $line && $line != \#* ]] || continue
    read -r instruction rest <<<"$line"
    case $instruction in
      FROM) _step_from "$rest" $((count++)) ;;
      WORKDIR) stage_folder=$rest && mkdir -p "$stage$stage_folder" ;;
      COPY) _step_copy "$rest" ;;
      RUN) _in_stage sh -c "$rest" ;;
      USER) stage_user=$rest ;;
      ENTRYPOINT) mapfile -t entry_point < <(grep -oE '"[^"]*"' <<<"$rest" | tr -d '"') ;;
      CMD) ;;
      *) echo "$0: $1: expected a known instruction, found: $line" >&2 && return 1 ;;
    esac || { echo "$0: $1: this step failed: $line" >&2; return 1; }
  done < <(sed -e ':join' -e '/\\$/{N;s/\\\n//;b join' -e '}' "$1")
}

run_image() { _in_stage "${entry_point[@]}" "$@"; }

# Standard input is the Dockerfile in run_dockerfile, and none of a step's business.
_in_stage() {
  # shellcheck disable=SC2016  # expanded by the inner shell
  in_root "$stage" "$stage_user" sh -c 'cd "$0" && exec "$@"' "$stage_folder" "$@" </dev/null
}

# _step_from 'debian:RELEASE[-slim] [AS NAME]' NUMBER
_step_from() {
  local image name
  read -r image _ name <<<"$1"
  [[ $image == debian:* ]] || { echo "$0: expected an image debian:..., found $image" >&2; return 1; }
  local release=${image#debian:}
  stage=$workspace/stage-${name:-$2} stage_user=root stage_folder=/ entry_point=()
  make_root "${release%-slim}" "$stage"
}

# _step_copy '. .' or '--from=NAME SOURCE TARGET'
_step_copy() {
  local from source target
  if [[ $1 == ". ." ]]; then
    git archive HEAD | tar -x -C "$stage$stage_folder"
  elif [[ $1 == --from=* ]]; then
    read -r from source target <<<"$1"
    mkdir -p "$stage$(dirname "$target")"
    cp -a "$workspace/stage-${from#--from=}$source" "$stage$target"
  else
    echo "$0: expected COPY . . or COPY --from=STAGE, found COPY $1" >&2
    return 1
  fi
}
