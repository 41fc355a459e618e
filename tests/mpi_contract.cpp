// The Communicator contract over processes: test-mpi-contract TRANSPORT under mpiexec, every
// algorithm of the transport; for verbs also its slots, and that broken wires are found out.
#include <cstdio>
#include <cstdlib>

#include "contract_mutations.hpp"
#include "contract_slots.hpp"
#include "transports/transport.hpp"
#ifdef WEFT_HAS_VERBS
#include "transports/verbs_device.hpp"
#endif

namespace weft {
namespace {

/// Tests whose name says the transport and the algorithm; all ranks register the same in the same
/// order.
class OverProcesses : public ::testing::Test {
 public:
  explicit OverProcesses(std::function<void()> body) : body_(std::move(body)) {}
  void TestBody() override {
    try {
      body_();
    } catch (const std::exception& e) {
      // The others wait for this rank: nothing after this can be trusted.
      std::fprintf(stderr, "%s\n", e.what());
      std::_Exit(static_cast<int>(ExitCode::failed));
    }
  }

 private:
  std::function<void()> body_;
};

void add_test(const std::string& suite, const std::string& name, std::function<void()> body) {
  ::testing::RegisterTest(suite.c_str(), name.c_str(), nullptr, nullptr, __FILE__, __LINE__,
                          [body]() -> ::testing::Test* { return new OverProcesses(body); });
}

void add_contract(Bootstrap& b, std::string transport, std::string algorithm) {
  const std::string suite = transport + "_" + algorithm;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    add_test(suite, "collectives_" + std::string(to_string(dtype)),
             [&b, transport, algorithm, dtype] {
               contract::collectives(b, transport, algorithm, dtype);
             });
  }
  for (const contract::NamedPromise& promise : contract::kPromises) {
    add_test(suite, promise.name,
             [&b, transport, algorithm, promise] { promise.check(b, transport, algorithm); });
  }
}

void add_bootstrap(Bootstrap& b) {
  add_test("bootstrap", "exchange", [&b] {
    const auto texts = b.all_gather(std::string(static_cast<std::size_t>(b.rank()), 'x'));
    for (int r = 0; r < b.size(); ++r) {
      EXPECT_EQ(texts[static_cast<std::size_t>(r)], std::string(static_cast<std::size_t>(r), 'x'));
    }
    EXPECT_EQ(b.max(b.rank()), b.size() - 1);
    EXPECT_EQ(b.host_count(), 1);
    EXPECT_EQ(b.local_rank(), b.rank());
  });
  add_test("bootstrap", "virtual_hosts", [&b] {
    const auto halves = make_mpi_bootstrap(2);
    EXPECT_EQ(halves->host_count(), (b.size() + 1) / 2);
    EXPECT_EQ(shm_unavailable(*halves), "");  // still one real host
  });
}

void add_slots(Bootstrap& b) {
  add_test("slots", "a_message_may_wait", [&b] { contract::a_message_may_wait(b); });
  add_test("slots", "no_slot_is_used_before_it_is_free",
           [&b] { contract::no_slot_is_used_before_it_is_free(b); });
  add_test("slots", "go_round", [&b] { contract::slots_go_round(b); });
}

#ifdef WEFT_HAS_VERBS
// Soft-RoCE takes no dma-buf: that is said, with the way out.
void add_registration() {
  add_test("registration", "a_dma_buf_that_is_not_taken", [] {
    const auto device = open_verbs_device({}, 0);
    Arena arena(MemorySpace::host, 4096);  // its file is none, and nobody gets to look
    std::string said;
    try {
      register_memory(device->domain.get(), {arena.data(), 4096, MemorySpace::device, arena.fd()},
                      device->where());
    } catch (const Error& error) {
      said = error.what();
    }
    EXPECT_EQ(said,
              "ibv_reg_dmabuf_mr failed on rxe0:1 (Operation not supported); 4096 bytes of a "
              "GPU were to be registered; this device's driver takes no such dma-buf: load "
              "nvidia-peermem, or use another device");
  });
}
#endif

void add_mutations(Bootstrap& b) {
  add_test("mutation", "dropped_immediate",
           [&b] { contract::dropped_signal_names_the_peer(b, make_verbs_transport); });
  add_test("mutation", "missing_credit",
           [&b] { contract::missing_credit_is_found(b, make_verbs_transport); });
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  using namespace weft;
  ::testing::InitGoogleTest(&argc, argv);
  const auto bootstrap = make_mpi_bootstrap();
  const std::string transport = argc > 1 ? argv[1] : "mpi";
  add_bootstrap(*bootstrap);
  for (const std::string_view algorithm : find_transport(transport).algorithms) {
    add_contract(*bootstrap, transport, std::string(algorithm));
  }
  if (transport == "verbs" && bootstrap->size() == 2) {
    add_slots(*bootstrap);
#ifdef WEFT_HAS_VERBS
    add_registration();
#endif
    add_mutations(*bootstrap);
  }
  if (bootstrap->rank() != 0) {  // one report is enough; failures show on every rank
    auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
    class Quiet : public ::testing::EmptyTestEventListener {
      void OnTestPartResult(const ::testing::TestPartResult& result) override {
        if (result.failed())
          std::fprintf(stderr, "%s:%d %s\n", result.file_name(), result.line_number(),
                       result.message());
      }
    };
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new Quiet);
  }
  const int mine = RUN_ALL_TESTS();
  return bootstrap->all(mine == 0) ? 0 : 1;
}
