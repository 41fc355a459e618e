#include "transports/transport.hpp"

#include "transports/touch.hpp"

namespace weft {
namespace {

/// Of a wire that has nothing to look up.
class AnySend final : public PersistentSend {
 public:
  AnySend(Transport& transport, Channel channel, Bytes source, Bytes destination, Bytes n,
          bool credited)
      : transport_(transport),
        channel_(channel),
        source_(source),
        destination_(destination),
        n_(n),
        credited_(credited) {}
  std::span<const PostedPart> start() override {
    return transport_.send(channel_, source_, destination_, n_, credited_);
  }
  void touch() const override { weft::touch(this, sizeof *this); }

 private:
  Transport& transport_;
  Channel channel_;
  Bytes source_, destination_, n_;
  bool credited_;
};

}  // namespace

std::span<const PostedPart> Transport::send(Channel channel, Bytes source, Bytes destination,
                                            Bytes n, bool) {
  if (n > 0) put(channel, source, destination, n);
  signal(channel);
  return in_one_part(n);
}

std::unique_ptr<PersistentSend> Transport::send_init(Channel channel, Bytes source,
                                                     Bytes destination, Bytes n, bool credited,
                                                     bool) {
  return std::make_unique<AnySend>(*this, channel, source, destination, n, credited);
}

}  // namespace weft
