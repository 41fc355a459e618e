#include "bench/roll_call.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "transports/bootstrap_hosts.hpp"

namespace weft {
namespace {

using Json = nlohmann::json;
using std::chrono::steady_clock;

constexpr auto kRound = std::chrono::milliseconds(100);
constexpr std::size_t kLargestDatagram = 60000;
constexpr std::size_t kLongestActivity = 200;
constexpr int kTellings = 3;  // datagrams may be lost

/// Addresses of the interfaces that are up. Loopback too: hosts may be containers of one machine.
std::vector<std::uint32_t> own_addresses() {
  std::vector<std::uint32_t> addresses;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return addresses;
  for (const ifaddrs* at = all; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != AF_INET) continue;
    if ((at->ifa_flags & IFF_UP) == 0) continue;
    addresses.push_back(reinterpret_cast<const sockaddr_in*>(at->ifa_addr)->sin_addr.s_addr);
  }
  freeifaddrs(all);
  return addresses;
}

Descriptor open_socket() {
  Descriptor fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in any{};
  any.sin_family = AF_INET;
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0) return {};
  return fd;
}

std::uint16_t port_of(const Descriptor& fd) {
  sockaddr_in own{};
  socklen_t length = sizeof own;
  if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &length) != 0) return 0;
  return own.sin_port;
}

std::string fresh_token() {
  std::string text;
  for (const std::byte byte : random_token())
    text += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  return text;
}

Json to_json(const RankState& state) {
  return {state.rank, static_cast<int>(state.condition), state.beats,
          state.activity.substr(0, kLongestActivity)};
}

RankState from_json(const Json& json) {
  return {json.at(0).get<Rank>(), static_cast<RankState::Condition>(json.at(1).get<int>()),
          json.at(2).get<std::uint64_t>(), json.at(3).get<std::string>()};
}

}  // namespace

RollCall::RollCall(Bootstrap& bootstrap, const ProgressBoard& board)
    : board_(board), rank_(bootstrap.rank()), hosts_(distinct_real_hosts(bootstrap.hosts())) {
  for (Rank rank = 0; rank < bootstrap.size(); ++rank)
    ranks_of_[real_host(bootstrap.hosts()[static_cast<std::size_t>(rank)])].push_back(rank);
  token_ = bootstrap.all_gather(fresh_token()).front();
  if (hosts_.size() < 2) return;
  socket_ = open_socket();
  const Json mine{{"port", port_of(socket_)}, {"addresses", own_addresses()}};
  for (const std::string& text : bootstrap.all_gather(mine.dump())) {
    const Json peer = Json::parse(text);
    const std::string& host = bootstrap.hosts()[peers_.size()];
    peers_.push_back(
        {real_host(host), peer["addresses"].get<std::vector<std::uint32_t>>(), peer["port"]});
  }
}

void RollCall::send_to(Rank rank, const std::string& text) {
  const Peer& peer = peers_[static_cast<std::size_t>(rank)];
  for (const std::uint32_t address : peer.addresses) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = peer.port;
    to.sin_addr.s_addr = address;
    sendto(socket_.get(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
           reinterpret_cast<const sockaddr*>(&to), sizeof to);
  }
}

std::string RollCall::receive() {
  std::string text(kLargestDatagram, '\0');
  for (;;) {
    const ssize_t got = recv(socket_.get(), text.data(), text.size(), MSG_DONTWAIT);
    if (got < 0) return {};
    const std::string one = text.substr(0, static_cast<std::size_t>(got));
    const Json json = Json::parse(one, nullptr, false);
    // Strangers, and an address that leads to another rank than was meant, are passed over.
    if (json.is_object() && json.value("token", "") == token_ && json.value("to", -1) == rank_)
      return one;
  }
}

std::string RollCall::states_text() const {
  Json states = Json::array();
  for (const RankState& state : board_.look()) states.push_back(to_json(state));
  return states.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void RollCall::handle(const std::string& text) {
  const Json json = Json::parse(text);
  const std::string kind = json.at("kind");
  const Rank from = json.at("from");
  const std::string& host = peers_.at(static_cast<std::size_t>(from)).host;
  if (kind == "question") {
    const Json reply{{"token", token_},
                     {"to", from},
                     {"from", rank_},
                     {"kind", "answer"},
                     {"states", Json::parse(states_text())}};
    send_to(from, reply.dump());
    const std::string& own = peers_[static_cast<std::size_t>(rank_)].host;
    const auto order = [&](const std::string& name) { return std::ranges::find(hosts_, name); };
    earlier_host_asks_ = earlier_host_asks_ || order(host) < order(own);
  } else if (kind == "answer") {
    HostAnswer answer{host, ranks_of_[host], true, {}};
    for (const Json& state : json.at("states")) answer.states.push_back(from_json(state));
    answers_[host] = std::move(answer);
  } else {
    word_ = Word{json.at("code").get<int>(), json.at("message").get<std::string>()};
  }
}

std::optional<RollCall::Word> RollCall::answer() {
  if (socket_.get() < 0 || asking_) return std::nullopt;
  for (std::string text = receive(); !text.empty(); text = receive()) handle(text);
  return word_;
}

std::optional<std::vector<HostAnswer>> RollCall::ask(double seconds) {
  asking_ = true;
  const std::string& own =
      hosts_.size() < 2 ? hosts_.front() : peers_[static_cast<std::size_t>(rank_)].host;
  answers_[own] = {own, ranks_of_[own], true, board_.look()};
  const auto until = steady_clock::now() + std::chrono::duration<double>(seconds);
  for (std::size_t round = 0; answers_.size() < hosts_.size() && steady_clock::now() < until;
       ++round) {
    for (const std::string& host : hosts_) {
      if (answers_.contains(host)) continue;
      const Rank to = ranks_of_[host][round % ranks_of_[host].size()];
      send_to(to,
              Json{{"token", token_}, {"to", to}, {"from", rank_}, {"kind", "question"}}.dump());
    }
    std::this_thread::sleep_for(kRound);
    for (std::string text = receive(); !text.empty(); text = receive()) handle(text);
  }
  asking_ = false;
  if (earlier_host_asks_) return std::nullopt;
  std::vector<HostAnswer> answers;
  for (const std::string& host : hosts_) {
    const auto found = answers_.find(host);
    answers.push_back(found != answers_.end() ? found->second
                                              : HostAnswer{host, ranks_of_[host], false, {}});
  }
  return answers;
}

void RollCall::tell(const Word& word) {
  if (hosts_.size() < 2) return;
  for (int i = 0; i < kTellings; ++i) {
    for (const Rank to : ranks_of_[hosts_.front()]) {
      const Json told{{"token", token_},        {"to", to},
                      {"from", rank_},          {"kind", "word"},
                      {"code", word.exit_code}, {"message", word.message}};
      send_to(to, told.dump(-1, ' ', false, Json::error_handler_t::replace));
    }
    std::this_thread::sleep_for(kRound);
  }
}

}  // namespace weft
