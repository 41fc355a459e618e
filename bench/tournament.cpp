#include "bench/tournament.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <utility>

#include "bench/option_values.hpp"
#include "patterns/error.hpp"

namespace weft {
namespace {

bool meets(const PairRound& round, const RankPair& pair) {
  return std::ranges::any_of(round, [&](const RankPair& other) {
    return other.a == pair.a || other.a == pair.b || other.b == pair.a || other.b == pair.b;
  });
}

RankPair ordered(Rank a, Rank b) { return {std::min(a, b), std::max(a, b)}; }

/// A line without its comment, as words.
std::vector<std::string> words_of(std::string_view line) {
  std::istringstream stream{std::string(line.substr(0, line.find('#')))};
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

RankPair pair_of(const std::vector<std::string>& words, const std::string& where, int ranks) {
  if (words.size() != 2) {
    fail_usage(fmt::format("{}: '{}' is no pair; a line has two ranks, as in '0 1'", where,
                           fmt::join(words, " ")));
  }
  const auto rank = [&](const std::string& word) {
    return static_cast<Rank>(parse_integer(word, where, 0, ranks - 1));
  };
  const RankPair pair{rank(words[0]), rank(words[1])};
  if (pair.a == pair.b) {
    fail_usage(fmt::format("{}: rank {} cannot be paired with itself", where, pair.a));
  }
  return pair;
}

}  // namespace

std::vector<PairRound> tournament(int ranks) {
  const int players = ranks + ranks % 2, circle = players - 1;  // an odd one's last is nobody
  std::vector<PairRound> rounds;
  for (int r = 0; r < circle && ranks > 1; ++r) {
    PairRound& round = rounds.emplace_back();
    if (circle < ranks) round.push_back(ordered(r, circle));
    for (int k = 1; k < players / 2; ++k) {
      round.push_back(ordered((r + k) % circle, (r - k + circle) % circle));
    }
  }
  return rounds;
}

std::vector<PairRound> disjoint_rounds(const std::vector<RankPair>& pairs) {
  std::vector<PairRound> rounds;
  for (const RankPair& pair : pairs) {
    const auto free =
        std::ranges::find_if(rounds, [&](const PairRound& round) { return !meets(round, pair); });
    (free == rounds.end() ? rounds.emplace_back() : *free).push_back(pair);
  }
  return rounds;
}

std::vector<RankPair> parse_pairs(std::string_view text, const std::string& name, int ranks) {
  std::vector<RankPair> pairs;
  std::map<std::pair<Rank, Rank>, int> seen;
  int number = 0;
  for (std::string_view line : split(text, '\n')) {
    ++number;
    const std::vector<std::string> words = words_of(line);
    if (words.empty()) continue;
    const std::string where = fmt::format("--pairs {}, line {}", name, number);
    const RankPair pair = pair_of(words, where, ranks);
    const RankPair key = ordered(pair.a, pair.b);
    const auto [first, added] = seen.try_emplace({key.a, key.b}, number);
    if (!added) {
      fail_usage(
          fmt::format("{}: ranks {} and {} are paired on line {} already; both directions "
                      "of a pair are measured",
                      where, pair.a, pair.b, first->second));
    }
    pairs.push_back(pair);
  }
  if (pairs.empty()) fail_usage(fmt::format("--pairs {}: no pair in it; write '0 1'", name));
  return pairs;
}

std::vector<RankPair> read_pairs(const std::string& path, int ranks) {
  std::ifstream file(path);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file) {
    fail_usage(fmt::format("--pairs: cannot read {}: {}; name a file with two ranks a line", path,
                           std::strerror(errno)));
  }
  return parse_pairs(text.str(), path, ranks);
}

}  // namespace weft
