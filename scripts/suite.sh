# shellcheck shell=bash disable=SC2034,SC2154  # names cross the sourced files
# Sourced by run.sh and weft.sbatch: the five programs, one after another, into one results folder, and the verdict.

suite_transport=mpi,shm
suite_model=tiny
suite_results=$weft_root/results
suite_quick=0
suite_passed_on=()

suite_help() {
  cat <<TXT
  --transport LIST   transports (default $suite_transport)
  --model NAME       model shape (default $suite_model; the programs' --list-models names all)
  --quick            a tenth of a second a cell: to see that all works, not to compare
  --results DIR      where the run's folder is made (default results/)
  -- OPTIONS         all that follows goes to each program (their --help lists it)

In the run's folder: rows.csv (all rows), rows-PATTERN.json, flows-PATTERN.csv, PATTERN.log, status-PATTERN.json, verdict.txt.

Exit codes, taken from the programs' status files: 0 all fine, 1 a verification failed, 2 usage or environment,
3 inconclusive (a program was killed before it had finished), 4 timed out. Of several, the first of 1 4 2 3.
TXT
}

# suite_option NAME VALUE: takes one of the options above; sets suite_taken to the words it used, 0 if it is none.
suite_option() {
  suite_taken=2
  case $1 in
    --quick) suite_quick=1 suite_taken=1 && return 0 ;;
    --transport | --model | --results) ;;
    *) suite_taken=0 && return 0 ;;
  esac
  if [[ -z ${2-} ]]; then
    complain "$1 needs a value"
    return 2
  fi
  case $1 in
    --transport) suite_transport=$2 ;;
    --model) suite_model=$2 ;;
    --results) suite_results=$2 ;;
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

# suite_run FOLDER LAUNCHER...: runs each program under the launcher; returns the verdict.
suite_run() {
  local folder=$1 pattern
  shift
  trap suite_interrupt INT TERM HUP
  for pattern in "${weft_patterns[@]}"; do
    [[ $suite_interrupted ]] && break
    say ""
    say "== weft-$pattern"
    suite_program "$folder" "$pattern" "$@"
  done
  trap - INT TERM HUP
  say ""
  say "Verdict ($folder)"
  python3 "$weft_root/scripts/verdict.py" "$folder" "${weft_patterns[@]}" | tee -p "$folder/verdict.txt"
  return "${PIPESTATUS[0]}"
}

# suite_default OPTION VALUE: adds both to options, unless OPTION is passed on: the programs take an option once.
suite_default() {
  local word
  for word in "${suite_passed_on[@]}"; do
    [[ ${word%%=*} == "$1" ]] && return 0
  done
  options+=("$1" "$2")
}

# In the background and waited for, so that a signal to this shell alone reaches the program at once.
suite_program() {
  local folder=$1 pattern=$2 out tee_pid options=()
  shift 2
  suite_default --transport "$suite_transport"
  suite_default --model "$suite_model"
  ((suite_quick)) && suite_default --min-time 0 && suite_default --max-time 0.1
  exec {out}> >(tee -p "$folder/$pattern.log")
  tee_pid=$!
  "$@" "$weft_bin/weft-$pattern" "${options[@]}" --csv "$folder/rows.csv" \
    --json "$folder/rows-$pattern.json" --flows "$folder/flows-$pattern.csv" \
    "${suite_passed_on[@]}" </dev/null >&"$out" 2>&1 &
  suite_child=$!
  exec {out}>&-
  until wait "$suite_child" && suite_code=0 || suite_code=$?; ! kill -0 "$suite_child" 2>/dev/null; do :; done
  wait "$tee_pid"
  printf '%s\n' "$suite_code" >"$folder/.launcher-$pattern"
  [[ -f $folder/rows.csv.status.json ]] && mv "$folder/rows.csv.status.json" "$folder/status-$pattern.json"
  suite_child=
}

suite_interrupt() {
  suite_interrupted=1
  [[ $suite_child ]] && kill -TERM "$suite_child" 2>/dev/null
}
suite_interrupted='' suite_child=''
