// The options by group, added to a command line parser. Each program gets the options that mean
// something for its pattern.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/options.hpp"

namespace CLI {
class App;
}  // namespace CLI

namespace weft {

/// Adds options to one help group. Values reach the setters as text: the parser converts nothing,
/// so the locale has no say.
class OptionGroup {
 public:
  OptionGroup(CLI::App& app, std::string title) : app_(app), title_(std::move(title)) {}

  using Setter = std::function<void(const std::string& text)>;
  using ListSetter = std::function<void(const std::vector<std::string>& texts)>;
  /// "--name VALUE", once.
  void value(const std::string& name, const std::string& placeholder, const std::string& help,
             Setter set);
  /// "--name A,B", may repeat.
  void list(const std::string& name, const std::string& placeholder, const std::string& help,
            ListSetter set);
  /// "--name": target becomes `given`; "name = false" in a configuration file: the opposite.
  void flag(const std::string& name, const std::string& help, bool& target, bool given = true);

  // Common kinds of value.
  void count(const std::string& name, const std::string& help, int& target, int low = 1);
  void number(const std::string& name, const std::string& unit, const std::string& help,
              double& target, double low, double high);
  void text(const std::string& name, const std::string& placeholder, const std::string& help,
            std::string& target);

 private:
  CLI::App& app_;
  std::string title_;
};

// Options that programs share which otherwise have groups of their own.
void add_virtual_hosts(OptionGroup& group, Options& options);
void add_transport_choice(OptionGroup& group, Options& options);
void add_timeout(OptionGroup& group, Options& options);
void add_queue_pairs(OptionGroup& group, const std::string& help, Options& options);
void add_sampling_options(OptionGroup& group, Options& options);
void add_row_files(OptionGroup& group, std::string_view program, Options& options);
void add_queue_pairs_file(OptionGroup& group, Options& options);
void add_samples_file(OptionGroup& group, Options& options);
void add_transport_list(OptionGroup& group, Options& options);
/// --config, --help and --version.
void add_general_options(CLI::App& app, const std::string& title);

void add_layout_options(CLI::App& app, Options& options);
void add_shape_options(CLI::App& app, const Pattern& pattern, Options& options);
void add_pattern_options(CLI::App& app, const Pattern& pattern, Options& options);
void add_transport_options(CLI::App& app, Options& options);
void add_verbs_options(CLI::App& app, Options& options);
void add_measure_options(CLI::App& app, Options& options);
void add_output_options(CLI::App& app, const Pattern& pattern, Options& options);
void add_traffic_options(CLI::App& app, Options& options);
void add_information_options(CLI::App& app, Options& options);  // and --config

/// Text behind the list of options in --help.
std::string help_footer(const Pattern& pattern);

/// Programs that have `option` where this one has not: "weft-dp-gradsync"; empty if none has.
std::string programs_with(std::string_view option);
/// Names of the options of add_pattern_options() for this pattern.
std::vector<std::string> pattern_options_of(const Pattern& pattern);

}  // namespace weft
