#include "transports/verbs_events.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace weft {
namespace {

bool is_of_port(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_GID_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
      return true;
    default:
      return false;
  }
}

bool is_of_queue_pair(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return true;
    default:
      return false;
  }
}

}  // namespace

VerbsEvents::VerbsEvents(ibv_context* context, std::string where)
    : context_(context), where_(std::move(where)), stop_(eventfd(0, EFD_CLOEXEC)) {
  // A read that finds nothing must not block, or the thread could not be ended.
  fcntl(context_->async_fd, F_SETFL, fcntl(context_->async_fd, F_GETFL) | O_NONBLOCK);
  thread_ = std::thread([this] { watch(); });
}

VerbsEvents::~VerbsEvents() {
  const std::uint64_t one = 1;
  if (::write(stop_.get(), &one, sizeof one) != sizeof one) {
    thread_.detach();  // never seen; better than to wait for ever
    return;
  }
  thread_.join();
}

void VerbsEvents::watch() {
  pollfd files[] = {{stop_.get(), POLLIN, 0}, {context_->async_fd, POLLIN, 0}};
  while (poll(files, 2, -1) >= 0 || errno == EINTR) {
    if (files[0].revents != 0) return;
    if ((files[1].revents & (POLLERR | POLLNVAL)) != 0) return;
    ibv_async_event event{};
    while (ibv_get_async_event(context_, &event) == 0) {
      take(event);
      ibv_ack_async_event(&event);
    }
  }
}

void VerbsEvents::take(const ibv_async_event& event) {
  std::string text = fmt::format("{} reported: {}", where_, ibv_event_type_str(event.event_type));
  if (is_of_port(event.event_type)) text += fmt::format(" (port {})", event.element.port_num);
  if (is_of_queue_pair(event.event_type)) {
    text += fmt::format(" (queue pair {:#x})", event.element.qp->qp_num);
  }
  // A first message on a queue pair is no news.
  if (event.event_type == IBV_EVENT_COMM_EST) return;
  fmt::print(stderr, "weft: warning: {}\n", text);
  const std::lock_guard lock(mutex_);
  last_ = std::move(text);
}

std::string VerbsEvents::last() const {
  const std::lock_guard lock(mutex_);
  return last_;
}

}  // namespace weft
