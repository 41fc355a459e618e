#include "bench/noise.hpp"

#include <cmath>

namespace weft {
namespace {

constexpr double kTolerableLoad = 0.05;
constexpr double kTolerableSteal = 0.02;
constexpr int kAttempts = 3;
constexpr double kRepeatShare = 0.5;

double known(double value) { return std::isnan(value) ? 0 : value; }

}  // namespace

bool Noise::noisy() const { return badness() > 1; }

// Each kind in units of what is tolerable; any throttling is too much.
double Noise::badness() const {
  return std::max({known(other_load) / kTolerableLoad, known(steal) / kTolerableSteal,
                   known(throttled_us) > 0 ? 2 + known(throttled_us) : 0.0});
}

std::string Noise::text() const {
  std::string text;
  const auto add = [&text](bool noisy, const char* kind) {
    if (noisy) text += (text.empty() ? "" : "+") + std::string(kind);
  };
  add(other_load > kTolerableLoad, "load");
  add(steal > kTolerableSteal, "steal");
  add(throttled_us > 0, "throttled");
  if (!text.empty()) return text;
  return std::isnan(other_load) ? "unknown" : "quiet";
}

bool worth_another_attempt(const Noise& noise, int attempts, double spent_us, double budget_us) {
  return noise.noisy() && attempts < kAttempts && spent_us < kRepeatShare * budget_us;
}

Noise NoiseMeter::stop() { return {load_shares(bootstrap_, meter_.stop())}; }

}  // namespace weft
