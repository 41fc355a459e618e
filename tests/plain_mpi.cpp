// An independent small MPI program: the same collectives measured with nothing of weft, so that
// weft's own rows of transport `mpi` can be held against it.
//
//   mpiexec -n 2 plain-mpi --op allgather --sizes 8,4096,1048576 --hot --time 1
//
// One CSV line per size. median_us is of samples by weft's definition: all ranks agree on an
// instant of CLOCK_MONOTONIC (ranks of one host), sample = max over ranks(end) - instant; a sample
// for which a rank came late is left out and counted. back_to_back_us is the usual mean over a loop
// without a common start, max over ranks.
#include <mpi.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace {

double now_us() {
  using namespace std::chrono;
  return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

struct Options {
  std::string op = "allgather";
  std::vector<long> sizes{8, 4096, 1048576};
  long rotate = 0;  // bytes of all buffers of all ranks together, at least; 0: one set
  double seconds = 1;
};

[[noreturn]] void leave(const std::string& why) {
  std::fprintf(stderr,
               "plain-mpi: %s; use --op allgather|allreduce|alltoallv --sizes A,B,... (bytes per "
               "rank, alltoallv: per peer) [--hot | --rotate BYTES] [--time SECONDS]\n",
               why.c_str());
  MPI_Finalize();
  std::exit(2);
}

template <class T>
T number(std::string_view text) {
  T value{};
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc{} || result.ptr != text.data() + text.size() || value < T{})
    leave("'" + std::string(text) + "' is no number");
  return value;
}

std::vector<long> numbers(std::string_view text) {
  std::vector<long> list;
  while (true) {
    const auto comma = std::min(text.find(','), text.size());
    list.push_back(std::max(4L, number<long>(text.substr(0, comma))));
    if (comma == text.size()) return list;
    text.remove_prefix(comma + 1);
  }
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (name == "--hot") {
      options.rotate = 0;
      continue;
    }
    if (i + 1 == argc) leave(std::string(name) + " needs a value");
    const std::string_view value = argv[++i];
    if (name == "--op") {
      options.op = value;
    } else if (name == "--sizes") {
      options.sizes = numbers(value);
    } else if (name == "--rotate") {
      options.rotate = number<long>(value);
    } else if (name == "--time") {
      options.seconds = number<double>(value);
    } else {
      leave("unknown option " + std::string(name));
    }
  }
  if (options.op != "allgather" && options.op != "allreduce" && options.op != "alltoallv")
    leave("unknown operation '" + options.op + "'");
  return options;
}

int ranks() {
  int n = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &n);
  return n;
}
int my_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

/// One operation over a rotating set of buffers.
class Operation {
 public:
  Operation(const Options& options, long bytes)
      : op_(options.op), elements_(bytes / 4), n_(ranks()), counts_(at(n_), int(elements_)) {
    const bool exchange = op_ == "alltoallv", gather = op_ == "allgather";
    in_ = elements_ * (exchange ? n_ : 1);
    out_ = elements_ * (exchange || gather ? n_ : 1);
    for (int p = 0; p < n_; ++p) places_.push_back(int(p * elements_));
    const long set_bytes = (in_ + out_) * 4 * n_;
    for (long total = 0; sets_.empty() || total <= options.rotate; total += set_bytes) {
      sets_.push_back({buffer(in_), buffer(out_)});
    }
  }

  void run() {
    const Set& set = sets_[next_];
    next_ = (next_ + 1) % sets_.size();
    const int count = int(elements_);
    if (op_ == "allgather") {
      MPI_Allgather(set.in.get(), count, MPI_FLOAT, set.out.get(), count, MPI_FLOAT,
                    MPI_COMM_WORLD);
    } else if (op_ == "allreduce") {
      MPI_Allreduce(set.in.get(), set.out.get(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    } else {
      MPI_Alltoallv(set.in.get(), counts_.data(), places_.data(), MPI_FLOAT, set.out.get(),
                    counts_.data(), places_.data(), MPI_FLOAT, MPI_COMM_WORLD);
    }
  }
  std::size_t sets() const { return sets_.size(); }

 private:
  struct Free {
    void operator()(float* p) const { std::free(p); }
  };
  using Buffer = std::unique_ptr<float, Free>;
  struct Set {
    Buffer in, out;
  };

  static std::size_t at(int n) { return static_cast<std::size_t>(n); }
  static Buffer buffer(long elements) {
    const std::size_t bytes = (static_cast<std::size_t>(elements) * 4 + 4095) / 4096 * 4096;
    Buffer made(static_cast<float*>(std::aligned_alloc(4096, bytes)));
    std::fill_n(made.get(), bytes / 4, 1.0f + static_cast<float>(my_rank()));
    return made;
  }

  std::string op_;
  long elements_, in_ = 0, out_ = 0;
  int n_;
  std::vector<int> counts_, places_;
  std::vector<Set> sets_;
  std::size_t next_ = 0;
};

/// Rank 0's answer, the same on all.
bool agreed(bool mine) {
  int answer = mine ? 1 : 0;
  MPI_Bcast(&answer, 1, MPI_INT, 0, MPI_COMM_WORLD);
  return answer != 0;
}

struct Result {
  double median_us = 0, back_to_back_us = 0, seconds = 0;
  std::size_t samples = 0, late = 0;
};

/// From the agreed instant to this rank's end; negative: this rank was late. `margin_us`: enough to
/// leave the exchange that agrees on the instant.
double sample(Operation& operation, double margin_us) {
  const double mine = now_us();
  double start = 0;
  MPI_Allreduce(&mine, &start, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  start += margin_us;
  const bool late = now_us() > start;
  while (now_us() < start) {
  }
  operation.run();
  return late ? -1 : now_us() - start;
}

double median(std::vector<double>& values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

/// Samples of blocks, max over ranks; a late one of any rank is dropped, and too many of them widen
/// the margin.
void add_block(Operation& operation, std::vector<double>& samples, Result& result,
               double& margin_us) {
  constexpr std::size_t kBlock = 20;
  std::vector<double> mine(kBlock), most(kBlock), least(kBlock);
  for (double& s : mine) s = sample(operation, margin_us);
  MPI_Allreduce(mine.data(), most.data(), int(kBlock), MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  MPI_Allreduce(mine.data(), least.data(), int(kBlock), MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
  const std::size_t late_before = result.late;
  for (std::size_t i = 0; i < kBlock; ++i) {
    if (least[i] < 0) {
      ++result.late;
    } else {
      samples.push_back(most[i]);
    }
  }
  if (result.late - late_before > kBlock / 5) margin_us = std::min(margin_us * 2, 1000.0);
}

double back_to_back(Operation& operation, double period_us) {
  const int rounds = std::clamp(int(2e5 / std::max(period_us, 0.1)), 5, 20000);
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = now_us();
  for (int i = 0; i < rounds; ++i) operation.run();
  const double mine = (now_us() - begin) / rounds;
  double most = 0;
  MPI_Allreduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return most;
}

Result measure(Operation& operation, double seconds) {
  Result result;
  const double begin = now_us();
  for (std::size_t i = 0; i < std::max<std::size_t>(3, operation.sets()); ++i) operation.run();
  std::vector<double> samples;
  double margin_us = 8;
  do add_block(operation, samples, result, margin_us);
  while (agreed(now_us() - begin < (samples.size() < 20 ? 8e6 : 0.8e6) * seconds));
  double period_us = (now_us() - begin) / double(samples.size() + result.late);
  MPI_Bcast(&period_us, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  result.samples = samples.size();
  result.median_us = median(samples);
  result.back_to_back_us = back_to_back(operation, period_us);
  result.seconds = (now_us() - begin) * 1e-6;
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const Options options = parse(argc, argv);
  const bool speaks = my_rank() == 0;
  if (speaks) std::puts("op,ranks,size,rotate,samples,late,median_us,back_to_back_us,seconds");
  for (const long size : options.sizes) {
    Operation operation(options, size);
    const Result r = measure(operation, options.seconds);
    if (!speaks) continue;
    std::printf("%s,%d,%ld,%ld,%zu,%zu,", options.op.c_str(), ranks(), size, options.rotate,
                r.samples, r.late);
    if (r.samples > 0) std::printf("%.3f", r.median_us);  // blank: every sample was late
    std::printf(",%.3f,%.3f\n", r.back_to_back_us, r.seconds);
    std::fflush(stdout);
  }
  MPI_Finalize();
  return 0;
}
