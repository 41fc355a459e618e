#include "bench/row_writer.hpp"

#include <optional>
#include <set>

#include <fmt/format.h>

#include "bench/output_file.hpp"
#include "bench/row_text.hpp"
#include "bench/trace_writer.hpp"
#include "patterns/error.hpp"

namespace weft {
namespace {

constexpr Bytes kLongestHeader = 1 << 16;
constexpr std::string_view kFlowHeader =
    "launch_id,cell_id,source,destination,source_host,destination_host,channel,kind,dimension,"
    "network,messages,bytes,flow_source,source_address,destination_address,udp_source_port,"
    "source_queue_pair,destination_queue_pair,device\n";
constexpr std::string_view kQueuePairHeader =
    "launch_id,cell_id,source,destination,source_host,destination_host,channel,device,"
    "source_address,destination_address,udp_source_port,source_queue_pair,destination_queue_pair,"
    "path_mtu,messages,payload_bytes,posted_bytes,packets,frame_bytes\n";
constexpr std::string_view kSampleHeader =
    "launch_id,cell_id,iteration,rank,start_us,end_us,valid,attempt\n";
constexpr std::string_view kJsonTail = "\n]}\n";

/// What the first row of a CSV says its schema is, for the error.
std::string schema_of(const std::string& header, const std::string& rest) {
  if (!header.starts_with("schema,")) return "no schema (the first column is not 'schema')";
  const std::string schema = rest.substr(0, rest.find_first_of(",\r\n"));
  if (schema.empty()) return "an unknown schema";
  return schema == kSchema ? fmt::format("schema {} with other columns", schema)
                           : fmt::format("schema {}", schema);
}

/// A run that died while it wrote the header leaves a part of it, without newline.
bool torn_header(const std::string& text) { return csv_header().starts_with(text); }

void check_header(OutputFile& csv) {
  const std::string text = csv.read(0, kLongestHeader);
  if (text.starts_with(csv_header())) return;
  if (torn_header(text)) {
    csv.truncate(0);
    csv.append(csv_header());
    return;
  }
  const std::size_t end = text.find('\n');
  const std::string rest = end == std::string::npos ? "" : text.substr(end + 1);
  fail_usage(
      fmt::format("{} is a CSV of another schema version: it has {}, this program writes schema "
                  "{}; name another "
                  "file with --csv, or move the old one away",
                  csv.path(), schema_of(text.substr(0, end), rest), kSchema));
}

void close_torn_line(OutputFile& csv) {
  const Bytes size = csv.size();
  if (size > 0 && csv.read(size - 1, 1) != "\n") csv.append("\n");
}

OutputFile open_csv(const std::string& path) {
  OutputFile csv(path, OutputFile::Mode::append);
  const OutputFile::Lock lock(csv);
  if (csv.size() == 0) {
    csv.append(csv_header());
  } else {
    check_header(csv);
    close_torn_line(csv);
  }
  return csv;
}

void write_provenance(const OutputFile& beside, const std::string& provenance,
                      OutputFile::Mode mode) {
  if (!beside.regular()) return;  // nothing lies beside a device or a pipe
  OutputFile file(beside.path() + ".provenance.jsonl", mode);
  const OutputFile::Lock lock(file);
  close_torn_line(file);
  file.append(provenance + "\n");
}

void check_distinct(const OutputPaths& paths) {
  std::set<std::string> seen;
  for (const std::string& path : {paths.csv, paths.json, paths.flows, paths.queue_pairs,
                                  paths.samples, paths.traffic, paths.trace}) {
    if (!path.empty() && !path.starts_with("/dev/") && !seen.insert(path).second) {
      fail_usage(fmt::format(
          "{} is named for two outputs; give --csv, --json, --flows, --queue-pairs, --samples, "
          "--traffic and --trace a file each",
          path));
    }
  }
}

/// The document is complete after each row: a row goes over the tail, with a new tail behind it.
class JsonDocument {
 public:
  JsonDocument(const std::string& path, const std::string& launch_id, const std::string& provenance)
      : file_(path, OutputFile::Mode::replace) {
    const std::string head =
        fmt::format(R"({{"schema":"{}","launch_id":"{}","provenance":{},"rows":[)", kSchema,
                    launch_id, provenance);
    file_.append(file_.regular() ? head + std::string(kJsonTail) : head);
    end_ = static_cast<Bytes>(head.size());
  }
  /// A device or a pipe cannot go back over the tail: there it comes once, at the end.
  void finish() {
    if (!file_.regular()) file_.append(kJsonTail);
  }

  void add(const Row& row) {
    const std::string text = fmt::format("{}\n{}", first_ ? "" : ",", json_object(row));
    if (file_.regular()) {
      file_.overwrite(end_, text + std::string(kJsonTail), kJsonTail);
    } else {
      file_.append(text);
    }
    end_ += static_cast<Bytes>(text.size());
    first_ = false;
  }

 private:
  OutputFile file_;
  Bytes end_ = 0;  // where the tail begins
  bool first_ = true;
};

std::string_view to_string(MessageKind kind) {
  return kind == MessageKind::payload ? "payload" : "control";
}

std::string flow_line(const Flow& flow, const std::vector<std::string>& hosts) {
  const auto host = [&](Rank rank) {
    const auto index = static_cast<std::size_t>(rank);
    return index < hosts.size() ? csv_cell(hosts[index]) : std::string();
  };
  return fmt::format("{},{},{},{},{},{},{},{},{},{}", flow.source, flow.destination,
                     host(flow.source), host(flow.destination), flow.channel, to_string(flow.kind),
                     to_string(flow.dim), to_string(flow.network), flow.messages, flow.bytes);
}

std::string port_text(int port) { return port == 0 ? "" : fmt::format("{}", port); }

std::string tuple_text(const QueuePairFacts& pair) {
  return fmt::format("{},{},{},{},{},{}", pair.address, pair.peer_address,
                     port_text(pair.udp_source_port), pair.number, pair.peer_number, pair.device);
}

}  // namespace

struct RowWriter::Impl {
  std::string launch_id;
  std::optional<OutputFile> csv, flows, queue_pairs, samples, traffic;
  std::optional<JsonDocument> json;
  std::optional<TraceWriter> trace;
  int rows = 0;
  std::function<void()> before;
  std::function<void(int)> told;
};

RowWriter::RowWriter(const OutputPaths& paths, const std::string& launch_id,
                     const std::string& provenance_json)
    : impl_(std::make_unique<Impl>()) {
  check_distinct(paths);
  impl_->launch_id = launch_id;
  if (!paths.csv.empty()) {
    impl_->csv.emplace(open_csv(paths.csv));
    write_provenance(*impl_->csv, provenance_json, OutputFile::Mode::append);
  }
  if (!paths.json.empty()) impl_->json.emplace(paths.json, launch_id, provenance_json);
  const auto open_table = [&](const std::string& path, std::string_view header,
                              std::optional<OutputFile>& file) {
    if (path.empty()) return;
    file.emplace(path, OutputFile::Mode::replace);
    file->append(header);
    write_provenance(*file, provenance_json, OutputFile::Mode::replace);
  };
  open_table(paths.flows, kFlowHeader, impl_->flows);
  open_table(paths.queue_pairs, kQueuePairHeader, impl_->queue_pairs);
  open_table(paths.samples, kSampleHeader, impl_->samples);
  open_table(paths.traffic, csv_header(traffic_file_columns()), impl_->traffic);
  if (!paths.trace.empty()) impl_->trace.emplace(paths.trace, launch_id, provenance_json);
}

RowWriter::~RowWriter() {
  try {
    if (impl_->json) impl_->json->finish();
  } catch (const Error& error) {
    fmt::print(stderr, "weft: {}\n", error.what());
  }
}

void RowWriter::write(const Row& row) {
  if (impl_->before) impl_->before();
  if (impl_->csv) {
    const OutputFile::Lock lock(*impl_->csv);
    impl_->csv->append(csv_line(row));
  }
  if (impl_->json) impl_->json->add(row);
  ++impl_->rows;
  if (impl_->told) impl_->told(impl_->rows);
}

void RowWriter::write_flows(const std::string& cell_id, const FlowTable& table) {
  if (!impl_->flows) return;
  std::string text;
  for (const Flow& flow : table.flows) {
    const auto pair = table.queue_pairs.find({flow.source, flow.destination, flow.channel});
    text += fmt::format("{},{},{},{},{}\n", impl_->launch_id, csv_cell(cell_id),
                        flow_line(flow, table.hosts), table.source,
                        pair == table.queue_pairs.end() ? ",,,,," : tuple_text(pair->second));
  }
  impl_->flows->append(text);
}

void RowWriter::write_queue_pairs(const std::string& cell_id, const QueuePairs& pairs,
                                  const std::vector<std::string>& hosts) {
  if (!impl_->queue_pairs) return;
  std::string text;
  for (const auto& [key, pair] : pairs) {
    text +=
        fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n", impl_->launch_id,
                    csv_cell(cell_id), pair.rank, pair.peer,
                    csv_cell(hosts.at(static_cast<std::size_t>(pair.rank))),
                    csv_cell(hosts.at(static_cast<std::size_t>(pair.peer))), pair.index,
                    pair.device, pair.address, pair.peer_address, port_text(pair.udp_source_port),
                    pair.number, pair.peer_number, pair.path_mtu, pair.sent.messages,
                    pair.sent.payload, pair.sent.posted, pair.sent.packets,
                    pair.sent.frame_bytes > 0 ? fmt::format("{}", pair.sent.frame_bytes) : "");
  }
  impl_->queue_pairs->append(text);
}

void RowWriter::write_samples(const std::string& cell_id, const std::vector<Sample>& samples) {
  if (!impl_->samples) return;
  const std::string cell = csv_cell(cell_id);
  std::string text;
  for (const Sample& sample : samples) {
    text +=
        fmt::format("{},{},{},{},{:.3f},{:.3f},{},{}\n", impl_->launch_id, cell, sample.iteration,
                    sample.rank, sample.start_us, sample.end_us, sample.valid, sample.attempt);
  }
  impl_->samples->append(text);
}

void RowWriter::write_traffic(const Row& part) {
  if (impl_->traffic) impl_->traffic->append(csv_line(part, traffic_file_columns()));
}

void RowWriter::write_trace(const TracedCell& cell) {
  if (impl_->trace) impl_->trace->add(cell);
}

int RowWriter::rows() const { return impl_->rows; }

void RowWriter::on_row(std::function<void()> before, std::function<void(int)> told) {
  impl_->before = std::move(before);
  impl_->told = std::move(told);
}

}  // namespace weft
