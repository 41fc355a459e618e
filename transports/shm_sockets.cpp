#include "transports/shm_sockets.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>

#include "patterns/error.hpp"
#include "transports/bootstrap_agree.hpp"

namespace weft {
namespace {

constexpr std::array kDefaultPlaces = {SocketPlace::abstract, SocketPlace::temporary};
constexpr std::size_t kMostDescriptors = 4;
constexpr int kBacklog = 256;  // above the ranks of a host: connect() never waits for accept()

constexpr int kPatienceSeconds = 60;

/// What a caller says first. Only who got the listener's token through the bootstrap is served.
struct Hello {
  Token token{};
  Rank rank = -1;
};

[[noreturn]] void fail_errno(const char* call) {
  fail_usage(fmt::format("cannot share memory with the ranks of this host: {}: {}", call,
                         std::strerror(errno)));
}

std::string hex(const Token& token) {
  std::string text;
  for (const std::byte b : token) text += fmt::format("{:02x}", std::to_integer<unsigned>(b));
  return text;
}

struct Address {
  sockaddr_un socket{};
  socklen_t length = 0;
};

/// Of a path, or of an abstract name (first byte zero).
Address address_of(const std::string& name) {
  Address address;
  address.socket.sun_family = AF_UNIX;
  if (name.size() + 1 > sizeof address.socket.sun_path) {
    fail_usage(fmt::format("socket path '{}' is too long; choose a shorter TMPDIR", name));
  }
  std::memcpy(address.socket.sun_path, name.data(), name.size());
  address.length =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size() + (name[0] != '\0'));
  return address;
}

Descriptor make_socket() {
  Descriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) fail_errno("socket");
  const timeval limit{kPatienceSeconds, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  return fd;
}

/// A listening socket; its file, if it has one, goes with hide() or the object.
class Listener {
 public:
  explicit Listener(SocketPlace place) : token_(random_token()), socket_(make_socket()) {
    name_ = place == SocketPlace::abstract ? std::string(1, '\0') + "weft-" + hex(random_token())
                                           : make_path();
    const Address address = address_of(name_);
    if (bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address.socket), address.length) !=
        0) {
      fail_errno("bind");
    }
    if (listen(socket_.get(), kBacklog) != 0) fail_errno("listen");
  }
  ~Listener() { hide(); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  /// Token and name, for the bootstrap.
  std::string record() const {
    return std::string(reinterpret_cast<const char*>(token_.data()), token_.size()) + name_;
  }
  int fd() const { return socket_.get(); }
  const Token& token() const { return token_; }

  void hide() {
    if (directory_.empty()) return;
    unlink(name_.c_str());
    rmdir(directory_.c_str());
    directory_.clear();
  }

 private:
  std::string make_path() {
    const char* root = std::getenv("TMPDIR");
    std::string pattern =
        std::string(root != nullptr && *root != '\0' ? root : "/tmp") + "/weft-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) fail_errno("mkdtemp in TMPDIR");
    directory_ = pattern;
    return directory_ + "/s";
  }

  Token token_;
  Descriptor socket_;
  std::string name_, directory_;
};

Descriptor call_peer(const std::string& record, Rank me) {
  Descriptor fd = make_socket();
  Hello hello{.token = {}, .rank = me};
  std::memcpy(hello.token.data(), record.data(), hello.token.size());
  const Address address = address_of(record.substr(hello.token.size()));
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.socket), address.length) != 0) {
    fail_errno("connect");
  }
  if (send(fd.get(), &hello, sizeof hello, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof hello))
    fail_errno("send");
  return fd;
}

union ControlBuffer {
  cmsghdr align;
  char bytes[CMSG_SPACE(sizeof(int) * kMostDescriptors)];
};

void send_descriptors(int socket, std::span<const int> fds) {
  ControlBuffer control{};
  char payload = 'w';
  iovec data{&payload, 1};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = CMSG_SPACE(fds.size_bytes());
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(fds.size_bytes());
  std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  if (sendmsg(socket, &message, MSG_NOSIGNAL) != 1) fail_errno("sendmsg");
}

std::vector<Descriptor> receive_descriptors(int socket) {
  ControlBuffer control{};
  char payload = 0;
  iovec data{&payload, 1};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1) fail_errno("recvmsg");
  if ((message.msg_flags & MSG_CTRUNC) != 0) {  // the descriptors had no room in this process
    errno = EMFILE;
    fail_errno("recvmsg");
  }
  std::vector<Descriptor> received;
  for (cmsghdr* h = CMSG_FIRSTHDR(&message); h != nullptr; h = CMSG_NXTHDR(&message, h)) {
    if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t i = 0; i < (h->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(h) + i * sizeof(int), sizeof fd);
      received.emplace_back(fd);
    }
  }
  return received;
}

Descriptor accept_caller(int listener) {
  pollfd ready{listener, POLLIN, 0};
  const int n = poll(&ready, 1, kPatienceSeconds * 1000);
  if (n == 0) errno = ETIMEDOUT;
  if (n <= 0) fail_errno("poll");
  Descriptor caller(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
  if (caller.get() < 0) fail_errno("accept");
  return caller;
}

/// Serves every other rank once. Callers without the token are strangers: they get nothing and do
/// not count.
void serve(const Listener& listener, int callers, std::span<const int> mine) {
  while (callers > 0) {
    const Descriptor caller = accept_caller(listener.fd());
    Hello hello;
    const ssize_t n = recv(caller.get(), &hello, sizeof hello, MSG_WAITALL);
    if (n != static_cast<ssize_t>(sizeof hello) || hello.token != listener.token()) continue;
    send_descriptors(caller.get(), mine);
    --callers;
  }
}

/// Which rank gets the descriptors of which.
using Wants = std::function<bool(Rank, Rank)>;

int callers_of(const Bootstrap& bootstrap, const Wants& wants) {
  int callers = 0;
  for (Rank r = 0; r < bootstrap.size(); ++r)
    callers += r != bootstrap.rank() && wants(r, bootstrap.rank());
  return callers;
}

/// One attempt. Returns an empty list, on all ranks, when some rank could not reach another; `why`
/// says it.
std::vector<std::vector<Descriptor>> try_place(Bootstrap& bootstrap, std::span<const int> mine,
                                               const Wants& wants, SocketPlace place,
                                               std::string& why) {
  std::unique_ptr<Listener> listener;
  std::string error = error_record([&] { listener = std::make_unique<Listener>(place); });
  const auto records = bootstrap.all_gather(listener ? listener->record() : std::string());
  std::vector<Descriptor> calls(records.size());
  for (std::size_t r = 0; r < records.size() && error.empty(); ++r) {
    const Rank other = static_cast<Rank>(r);
    if (other == bootstrap.rank() || !wants(bootstrap.rank(), other)) continue;
    error = error_record([&] {
      if (records[r].empty()) fail_usage(fmt::format("rank {} could not open a socket", r));
      calls[r] = call_peer(records[r], bootstrap.rank());
    });
  }
  for (const std::string& text : bootstrap.all_gather(error)) {
    if (!text.empty() && why.empty()) why = text;
    if (!text.empty()) return {};
  }
  listener->hide();
  std::vector<std::vector<Descriptor>> received(records.size());
  together(bootstrap, [&] {
    serve(*listener, callers_of(bootstrap, wants), mine);
    for (std::size_t r = 0; r < calls.size(); ++r) {
      if (calls[r].get() >= 0) received[r] = receive_descriptors(calls[r].get());
    }
  });
  return received;
}

std::vector<std::vector<Descriptor>> exchange(Bootstrap& bootstrap, std::span<const int> mine,
                                              const Wants& wants,
                                              std::span<const SocketPlace> places) {
  if (mine.size() > kMostDescriptors) {
    fail_usage(fmt::format("{} descriptors to share; at most {}", mine.size(), kMostDescriptors));
  }
  std::string why;
  for (const SocketPlace place :
       places.empty() ? std::span<const SocketPlace>(kDefaultPlaces) : places) {
    auto received = try_place(bootstrap, mine, wants, place, why);
    if (!received.empty()) return received;
  }
  throw_error_record(why);
  fail_usage("no place for a socket was given");
}

}  // namespace

std::vector<std::vector<Descriptor>> exchange_descriptors(Bootstrap& bootstrap,
                                                          std::span<const int> mine,
                                                          std::span<const SocketPlace> places) {
  return exchange(
      bootstrap, mine, [](Rank, Rank) { return true; }, places);
}

Descriptor fetch_descriptor(Bootstrap& bootstrap, int mine, Rank from) {
  std::vector<Rank> sources;
  for (const double source : bootstrap.all_gather(static_cast<double>(from)))
    sources.push_back(static_cast<Rank>(source));
  const std::vector<double> numbers = bootstrap.all_gather(static_cast<double>(mine));
  std::vector<std::vector<Descriptor>> received;
  if (!bootstrap.in_process()) {
    received = exchange(
        bootstrap, std::span(&mine, 1),
        [&](Rank to, Rank source) { return sources[static_cast<std::size_t>(to)] == source; }, {});
  }
  if (from == bootstrap.rank() || bootstrap.in_process()) {
    Descriptor copy(dup(static_cast<int>(numbers[static_cast<std::size_t>(from)])));
    // The number is good until its owner has the answer too and closes what it came with.
    if (bootstrap.in_process()) bootstrap.barrier();
    return copy;
  }
  return std::move(received[static_cast<std::size_t>(from)].at(0));
}

}  // namespace weft
