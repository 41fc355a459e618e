# shellcheck shell=bash disable=SC2034,SC2154  # names cross the sourced files
# Sourced by run.sh and weft.sbatch: the five programs, one after another, into one results folder, and the verdict.

suite_transport=mpi,shm
suite_model=tiny suite_model_asked=''
suite_results=$weft_root/results
suite_quick=0
suite_launches=1
suite_passed_on=()

suite_help() {
  cat <<TXT
  --transport LIST   transports (default $suite_transport)
  --model NAME       model shape (default $suite_model; the programs' --list-models names all)
  --quick            a tenth of a second a cell: to see that all works, not to compare
  --launches N       start every program N times (default 1), in turn and each time in another order: launches are what
                     weft-compare compares. Nine take nine times as long
  --results DIR      where the run's folder is made (default results/)
  -- OPTIONS         all that follows goes to each program (their --help lists it)

In the run's folder: rows.csv (all rows of all launches), rows-PATTERN.json, flows-PATTERN.csv, PATTERN.log,
status-PATTERN.json, verdict.txt; the files of a program's second launch are named PATTERN-2, and so on.

Exit codes, taken from the programs' status files: 0 all fine, 1 a verification failed, 2 usage or environment,
3 inconclusive (a program was killed before it had finished), 4 timed out. Of several, the first of 1 4 2 3.
TXT
}

# suite_option NAME VALUE: takes one of the options above; sets suite_taken to the words it used, 0 if it is none.
suite_option() {
  suite_taken=2
  case $1 in
    --quick) suite_quick=1 suite_taken=1 && return 0 ;;
    --transport | --model | --results | --launches) ;;
    *) suite_taken=0 && return 0 ;;
  esac
  if [[ -z ${2-} ]]; then
    complain "$1 needs a value"
    return 2
  fi
  case $1 in
    --transport) suite_transport=$2 ;;
    --model) suite_model=$2 suite_model_asked=1 ;;
    --results) suite_results=$2 ;;
    --launches)
      if [[ ! $2 =~ ^[1-9][0-9]{0,3}$ ]]; then
        complain "--launches '$2' is not a number of launches (1 to 9999)"
        return 2
      fi
      suite_launches=$2
      ;;
  esac
}

# What an outer launcher left behind would make our mpiexec, or the programs, take themselves for its ranks.
scrub_launcher_environment() {
  local name
  for name in $(compgen -e); do
    case $name in
      PMI_* | PMI2_* | PMIX_* | HYDRA_* | HYDI_* | MPIEXEC_* | MPI_LOCAL* | OMPI_* | PRTE_* | PALS_* | FLUX_*) unset "$name" ;;
      SLURM_*) [[ ${1-} == keep-slurm ]] || unset "$name" ;;
    esac
  done
}

# suite_folder NAME: makes results/NAME, which no other run has, and prints it.
suite_folder() {
  mkdir -p "$suite_results" 2>/dev/null
  local folder=$suite_results/$1 n=1
  until mkdir "$folder" 2>/dev/null; do
    if [[ ! -e $folder ]]; then
      complain "cannot make $folder; choose a folder that can be written with --results"
      return 2
    fi
    folder=$suite_results/$1.$((n++))
  done
  printf '%s\n' "$folder"
}

# suite_run FOLDER LAUNCHER...: starts each program under the launcher, --launches times; returns the verdict.
suite_run() {
  local folder=$1 launch
  shift
  trap suite_interrupt INT TERM HUP
  for ((launch = 1; launch <= suite_launches; ++launch)); do
    suite_launch "$folder" "$launch" "$@"
  done
  trap - INT TERM HUP
  say ""
  say "Verdict ($folder)"
  python3 "$weft_root/scripts/verdict.py" "$folder" --launches "$suite_launches" "${weft_patterns[@]}" |
    tee -p "$folder/verdict.txt"
  return "${PIPESTATUS[0]}"
}

# One start of every program. Several launches go in another order each time, so that no program always follows the same
# one; the screen shows the tables of the first.
suite_launch() {
  local folder=$1 launch=$2 pattern patterns=("${weft_patterns[@]}")
  shift 2
  ((suite_launches > 1)) && mapfile -t patterns < <(shuf -e -- "${patterns[@]}")
  for pattern in "${patterns[@]}"; do
    [[ $suite_interrupted ]] && return
    ((launch == 1)) && say ""
    if ((suite_launches > 1)); then
      say "== weft-$pattern, launch $launch of $suite_launches"
    else
      say "== weft-$pattern"
    fi
    suite_program "$folder" "$pattern" "$launch" "$@"
  done
}

# suite_passes OPTION: whether it is passed on to the programs.
suite_passes() {
  local word
  for word in "${suite_passed_on[@]}"; do
    [[ ${word%%=*} == "$1" ]] && return 0
  done
  return 1
}

# suite_default OPTION VALUE: adds both to options, unless OPTION is passed on: the programs take an option once.
suite_default() {
  suite_passes "$1" || options+=("$1" "$2")
}

# In the background and waited for, so that a signal to this shell alone reaches the program at once.
suite_program() {
  local folder=$1 pattern=$2 launch=$3 name=$2 screen out tee_pid options=()
  shift 3
  ((launch > 1)) && name=$pattern-$launch
  suite_default --transport "$suite_transport"
  # A sweep has no model; who asks for both shall hear it.
  { [[ ! $suite_model_asked ]] && suite_passes --sizes; } || suite_default --model "$suite_model"
  ((suite_quick)) && suite_default --min-time 0 && suite_default --max-time 0.1
  if ((launch == 1)); then exec {screen}>&1; else exec {screen}>/dev/null; fi
  exec {out}> >(tee -p "$folder/$name.log" >&"$screen")
  tee_pid=$!
  "$@" "$weft_bin/weft-$pattern" "${options[@]}" --csv "$folder/rows.csv" \
    --json "$folder/rows-$name.json" --flows "$folder/flows-$name.csv" \
    "${suite_passed_on[@]}" </dev/null >&"$out" 2>&1 {screen}>&- &
  suite_child=$!
  exec {out}>&- {screen}>&-
  until wait "$suite_child" && suite_code=0 || suite_code=$?; ! kill -0 "$suite_child" 2>/dev/null; do :; done
  wait "$tee_pid"
  printf '%s\n' "$suite_code" >"$folder/.launcher-$name"
  [[ -f $folder/rows.csv.status.json ]] && mv "$folder/rows.csv.status.json" "$folder/status-$name.json"
  suite_child=
}

suite_interrupt() {
  suite_interrupted=1
  [[ $suite_child ]] && suite_tell_to_end "$suite_child" 2>/dev/null
}
# suite_tell_to_end PID: so that the ranks under this launcher close their files.
suite_tell_to_end() {
  kill -TERM "$1"
}
suite_interrupted='' suite_child=''
