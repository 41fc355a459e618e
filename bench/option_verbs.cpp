// Options of raw RDMA.
#include "bench/option_groups.hpp"
#include "bench/option_values.hpp"
#include "patterns/error.hpp"

namespace weft {
namespace {

constexpr Bytes kMostEager = Bytes{64} << 10;

Bytes path_mtu(const std::string& text) {
  const Bytes mtu = parse_integer(text, "--path-mtu", 256, 4096);
  if ((mtu & (mtu - 1)) != 0) {
    fail_usage("--path-mtu " + text + " is none; there are 256, 512, 1024, 2048 and 4096");
  }
  return mtu;
}

Bytes eager_size(const std::string& text) {
  const Bytes bytes = parse_size(text);
  if (bytes < 0 || bytes > kMostEager) {
    fail_usage("--eager " + text + " is out of range; at most 64K");
  }
  return bytes;
}

void add_modes(OptionGroup& group, VerbsOptions& verbs) {
  group.value(
      "--qp-mode", "MODE",
      "messages over the queue pairs of --qps: round-robin (each\non the next) or split (each "
      "on all) (default round-robin)",
      [&verbs](const std::string& text) {
        verbs.mode = parse_choice<QueuePairMode>(
            text, "--qp-mode",
            {{"round-robin", QueuePairMode::round_robin}, {"split", QueuePairMode::split}});
      });
  group.value("--signal", "MODE",
              "how data are announced: immediate, or write (a word that\nis polled: least latency, "
              "one queue pair) (default immediate)",
              [&verbs](const std::string& text) {
                verbs.signal = parse_choice<SignalMode>(
                    text, "--signal",
                    {{"immediate", SignalMode::immediate}, {"write", SignalMode::write}});
              });
  group.value(
      "--eager", "BYTES",
      "messages up to this size wait at their receiver, longer\nones for its leave (default "
      "8K, at most 64K)",
      [&verbs](const std::string& text) { verbs.eager = eager_size(text); });
}

void add_integer(OptionGroup& group, const std::string& name, const std::string& help, int& target,
                 int low, int high) {
  group.value(name, "N", help, [=, &target](const std::string& text) {
    target = static_cast<int>(parse_integer(text, name, low, high));
  });
}

void add_packet_options(OptionGroup& group, VerbsOptions& verbs) {
  group.value("--path-mtu", "BYTES", "payload of a packet (default: the most that both ports have)",
              [&verbs](const std::string& text) { verbs.path_mtu = path_mtu(text); });
  add_integer(group, "--service-level", "InfiniBand service level (default 0)", verbs.service_level,
              0, 15);
  add_integer(group, "--traffic-class", "of RoCE packets: 4 x DSCP + ECN bits (default 0)",
              verbs.traffic_class, 0, 255);
  group.value(
      "--flow-label", "N",
      "of RoCE packets, which makes their UDP source port\n(default 0: by queue pair numbers)",
      [&verbs](const std::string& text) {
        verbs.flow_label =
            static_cast<std::uint32_t>(parse_integer(text, "--flow-label", 0, 0xFFFFF));
      });
  add_integer(
      group, "--udp-sport",
      "UDP source port of the first queue pair to a peer, the\nnext ones follow (mlx5 only)",
      verbs.udp_source_port, 0xC000, 0xFFFF - kMostVerbsQueuePairs);
}

}  // namespace

void add_verbs_options(CLI::App& app, Options& options) {
  OptionGroup group(app, "Raw RDMA (transport verbs)");
  VerbsOptions& verbs = options.verbs;
  group.text("--device", "NAME", "as mlx5_0 or mlx5_0:1 (default: the nearest to the rank)",
             verbs.device);
  add_integer(group, "--gid-index", "(default: RoCE v2 over IPv4 first)", verbs.gid_index, 0,
              65535);
  add_modes(group, verbs);
  add_packet_options(group, verbs);
  add_integer(
      group, "--ack-timeout",
      "exponent t: a packet is sent again after 4 us x 2^t\nwithout acknowledgement (default "
      "14)",
      verbs.timeout, 1, 31);
  add_integer(group, "--retries",
              "of a packet until its queue pair fails (default 7,\nwhich Soft-RoCE takes for ever)",
              verbs.retries, 0, 7);
  add_integer(group, "--rnr-retries", "while the receiver is not ready (default 7: for ever)",
              verbs.rnr_retries, 0, 7);
}

}  // namespace weft
