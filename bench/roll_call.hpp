// What the ranks of other hosts are doing, asked for when nothing goes on any more: a few datagrams
// apart from the transports, which may be what is stuck.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/hang_report.hpp"
#include "transports/shm_segment.hpp"

namespace weft {

class RollCall {
 public:
  /// Collective: the ranks learn of each other's addresses. On one host there is nobody to ask, and
  /// nothing is opened.
  RollCall(Bootstrap& bootstrap, const ProgressBoard& board);

  /// Why a run is over, as a rank of another host told.
  struct Word {
    int exit_code = 0;
    std::string message;
  };
  /// Answers those who asked since the last call; returns the last word, if one came. Call it a few
  /// times a second.
  std::optional<Word> answer();

  /// Asks one rank after the other of each host, this one included, for at most `seconds`. Nothing
  /// if a rank of a host before this one asks too: that one will tell.
  std::optional<std::vector<HostAnswer>> ask(double seconds);
  /// Sends the last word to the ranks of rank 0's host, which has the files.
  void tell(const Word& word);

 private:
  struct Peer {
    std::string host;
    std::vector<std::uint32_t> addresses;  // IPv4, network order; of any of its interfaces
    std::uint16_t port = 0;
  };
  void send_to(Rank rank, const std::string& text);
  /// Next datagram of this launch; empty: none waits.
  std::string receive();
  std::string states_text() const;
  void handle(const std::string& text);

  const ProgressBoard& board_;
  Rank rank_;
  std::string token_;
  std::vector<std::string> hosts_;  // distinct real hosts, in order of first appearance
  std::map<std::string, std::vector<Rank>> ranks_of_;
  std::vector<Peer> peers_;  // by rank
  Descriptor socket_;        // none on one host
  std::atomic<bool> asking_{false};
  std::map<std::string, HostAnswer> answers_;  // while asking
  std::optional<Word> word_;
  bool earlier_host_asks_ = false;
};

}  // namespace weft
