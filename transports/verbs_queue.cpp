#include "transports/verbs_queue.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "patterns/error.hpp"
#include "transports/roce.hpp"
#include "transports/verbs_udp_port.hpp"

namespace weft {
namespace {

constexpr int kRnrTimer = 12;  // 0.64 ms until a receiver that was not ready is asked again
constexpr int kHopLimit = 64;
constexpr int kMostReads = 16;  // under way
// Bytes of a RoCEv2 packet besides its payload: Ethernet 14+4, IP 20 or 40, UDP 8, BTH 12, ICRC 4;
// RETH on the first of a WRITE and on a READ, the immediate on the last of a WRITE, AETH on the
// first and the last of what answers a READ.
constexpr Bytes kOverIPv4 = 14 + 4 + 20 + 8 + 12 + 4, kOverIPv6 = kOverIPv4 + 20;
constexpr Bytes kRemoteAddress = 16, kImmediate = 4, kAnswer = 4;
constexpr std::uint32_t kPacketNumbers = 1u << 24;

std::uint32_t random_packet_number() {
  std::random_device device;
  return device() % kPacketNumbers;
}

}  // namespace

Bytes bytes_of(ibv_mtu mtu) { return mtu < IBV_MTU_256 ? 0 : Bytes{128} << mtu; }

ibv_mtu mtu_of(Bytes bytes) {
  for (const ibv_mtu mtu : {IBV_MTU_256, IBV_MTU_512, IBV_MTU_1024, IBV_MTU_2048, IBV_MTU_4096}) {
    if (bytes_of(mtu) == bytes) return mtu;
  }
  return static_cast<ibv_mtu>(0);
}

VerbsQueue::VerbsQueue(const VerbsDevice& device, ibv_cq* completions, const QueueDepths& depths,
                       std::uint32_t index)
    : depths_(depths), index_(index), credits_(depths.receive) {
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = completions;
  wanted.cap.max_send_wr = static_cast<std::uint32_t>(depths.send);
  wanted.cap.max_recv_wr = static_cast<std::uint32_t>(depths.receive);
  wanted.cap.max_send_sge = wanted.cap.max_recv_sge = 1;
  wanted.cap.max_inline_data = static_cast<std::uint32_t>(depths.inlined);
  wanted.qp_type = IBV_QPT_RC;
  queue_pair_.reset(ibv_create_qp(device.domain.get(), &wanted));
  if (!queue_pair_) {
    fail_verbs("ibv_create_qp", device.where(), errno,
               fmt::format("ask for fewer queue pairs (--qps) or ranks; RLIMIT_MEMLOCK is {}",
                           memlock_text()));
  }
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = static_cast<std::uint8_t>(device.port.port);
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  CHECK_VERBS(ibv_modify_qp(queue_pair_.get(), &attributes,
                            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
              device.where() + " (to INIT)");
  own_ = {queue_pair_->qp_num, random_packet_number()};
  CHECK_VERBS(post_receives(depths.receive), device.where());
}

void VerbsQueue::connect(const VerbsDevice& device, const VerbsOptions& options,
                         const QueueAddress& peer, const VerbsPath& path, int ordinal) {
  peer_ = peer;
  path_mtu_ = bytes_of(path.mtu);
  to_ready_to_receive(device, options, path);
  to_ready_to_send(device, options);
  if (!device.roce) return;
  frame_overhead_ = is_ipv4(path.gid) ? kOverIPv4 : kOverIPv6;
  udp_source_port_ = roce_source_port(own_.number, peer_.number, options.flow_label);
  if (options.udp_source_port == 0) return;
  udp_source_port_ = options.udp_source_port + ordinal;
  set_udp_source_port(queue_pair_.get(), device.where(), udp_source_port_);
}

void VerbsQueue::to_ready_to_receive(const VerbsDevice& device, const VerbsOptions& options,
                                     const VerbsPath& path) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = path.mtu;
  attributes.dest_qp_num = peer_.number;
  attributes.rq_psn = peer_.first_packet;
  attributes.max_dest_rd_atomic =
      static_cast<std::uint8_t>(std::min(kMostReads, device.attributes.max_qp_rd_atom));
  attributes.min_rnr_timer = kRnrTimer;
  ibv_ah_attr& way = attributes.ah_attr;
  way.is_global = device.roce;
  way.grh.dgid = path.gid;
  way.grh.sgid_index = static_cast<std::uint8_t>(device.gid_index);
  way.grh.hop_limit = kHopLimit;
  way.grh.traffic_class = static_cast<std::uint8_t>(options.traffic_class);
  way.grh.flow_label = options.flow_label;
  way.dlid = path.lid;
  way.sl = static_cast<std::uint8_t>(options.service_level);
  way.port_num = static_cast<std::uint8_t>(device.port.port);
  CHECK_VERBS(ibv_modify_qp(queue_pair_.get(), &attributes,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
              fmt::format("{} (to RTR, GID {} {}, peer's GID {})", device.where(), device.gid_index,
                          gid_text(device.gid), gid_text(path.gid)));
}

void VerbsQueue::to_ready_to_send(const VerbsDevice& device, const VerbsOptions& options) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.sq_psn = own_.first_packet;
  attributes.timeout = static_cast<std::uint8_t>(options.timeout);
  attributes.retry_cnt = static_cast<std::uint8_t>(options.retries);
  attributes.rnr_retry = static_cast<std::uint8_t>(options.rnr_retries);
  attributes.max_rd_atomic =
      static_cast<std::uint8_t>(std::min(kMostReads, device.attributes.max_qp_rd_atom));
  CHECK_VERBS(ibv_modify_qp(queue_pair_.get(), &attributes,
                            IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
              device.where() + " (to RTS)");
}

void VerbsQueue::fill(ibv_send_wr& request, ibv_sge& place, const Work& work) const {
  place = {reinterpret_cast<std::uint64_t>(work.here), static_cast<std::uint32_t>(work.bytes),
           work.key};
  request.next = nullptr;
  request.sg_list = &place;
  request.num_sge = work.bytes > 0 ? 1 : 0;
  request.opcode = work.reads       ? IBV_WR_RDMA_READ
                   : work.immediate ? IBV_WR_RDMA_WRITE_WITH_IMM
                                    : IBV_WR_RDMA_WRITE;
  request.send_flags = goes_inline(work) ? IBV_SEND_INLINE : 0;
  request.imm_data = htobe32(work.immediate.value_or(0));
  request.wr.rdma.remote_addr = work.there;
  request.wr.rdma.rkey = work.remote_key;
}

bool VerbsQueue::queue(const Work& work) {
  const auto at = static_cast<std::size_t>(length_);
  fill(list_[at], places_[at], work);
  // Unsignalled requests have an id as well: an error flushes them too, and then it tells whose
  // they were.
  list_[at].wr_id = unsignalled_id();
  if (length_ > 0) list_[at - 1].next = &list_[at];
  ++length_;
  ++queued_;
  if (work.immediate) --credits_;
  count(work, sent_, read_);
  if (goes_inline(work) || work.source_is_stable) return false;
  last_borrowed_ = queued_;
  list_borrows_ = true;
  return true;
}

PreparedWrite VerbsQueue::prepare(const Work& work) const {
  PreparedWrite result;
  fill(result.request, result.place, work);
  QueuePairTraffic nothing;
  count(work, result.traffic, nothing);
  return result;
}

// A READ asks with one packet; the answer is as many as a WRITE of the bytes would take.
void VerbsQueue::count(const Work& work, QueuePairTraffic& sent, QueuePairTraffic& read) const {
  ++sent.messages;
  const Bytes packets = work.bytes <= path_mtu_ ? 1 : (work.bytes + path_mtu_ - 1) / path_mtu_;
  const Bytes headers = packets * frame_overhead_ + (work.bytes + 3) / 4 * 4;
  QueuePairTraffic& carries = work.reads ? read : sent;
  carries.payload += work.payload;
  carries.posted += work.bytes;
  carries.packets += packets;
  if (work.reads) {
    ++read.messages;
    ++sent.packets;
  }
  if (frame_overhead_ == 0) return;
  if (work.reads) {
    sent.frame_bytes += frame_overhead_ + kRemoteAddress;
    read.frame_bytes += headers + std::min<Bytes>(packets, 2) * kAnswer;
  } else {
    sent.frame_bytes += headers + kRemoteAddress + (work.immediate ? kImmediate : 0);
  }
}

int VerbsQueue::post() {
  if (length_ == 0) return 0;
  if (due_completion(length_) || list_borrows_) {
    ibv_send_wr& last = list_[static_cast<std::size_t>(length_) - 1];
    last.send_flags |= IBV_SEND_SIGNALED;
    last.wr_id = signalled_id();
    unsignalled_ = 0;
  }
  length_ = 0;
  list_borrows_ = false;
  ibv_send_wr* refused = nullptr;
  return ibv_post_send(queue_pair_.get(), list_.data(), &refused);
}

std::int64_t VerbsQueue::refill() {
  if (const int error = post_receives(consumed_); error != 0) return -error;
  given_back_ += consumed_;
  consumed_ = 0;
  return given_back_;
}

int VerbsQueue::post_receives(int count) {
  for (int i = 0; i < count; ++i) {
    ibv_recv_wr request{};
    request.wr_id = WorkId{false, index_, 0}.pack();
    ibv_recv_wr* refused = nullptr;
    if (const int error = ibv_post_recv(queue_pair_.get(), &request, &refused); error != 0) {
      return error;
    }
  }
  return 0;
}

}  // namespace weft
