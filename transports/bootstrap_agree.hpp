// Setup that fails on one rank must fail on all, or the others wait for it: all ranks do a thing,
// tell each other how it went, and throw the same error.
#pragma once

#include <functional>
#include <string>

#include "patterns/error.hpp"
#include "transports/bootstrap.hpp"

namespace weft {

/// An error that all ranks have: each may leave in good order.
class AgreedError : public Error {
 public:
  using Error::Error;
};

/// Collective. Runs `work`; if it throws Error on any rank, throws the first rank's error (text and
/// code) as AgreedError on all, with the rank where only some failed.
void together(Bootstrap& bootstrap, const std::function<void()>& work);

/// Collective. Of what hinders each rank the first: "rank 3 on host: ..."; empty if nothing hinders
/// any.
std::string first_reason(Bootstrap& bootstrap, const std::string& mine);

/// The error as bytes to exchange; empty: none.
std::string error_record(const std::function<void()>& work);
/// Throws a record that all ranks know as AgreedError; nothing if it is empty.
void throw_error_record(const std::string& record);

}  // namespace weft
