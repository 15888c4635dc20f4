#include "ps/update/segments.h"

#include <algorithm>

#include "common/base/error.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

float DecayOf(const Variable& variable, const config::Optimizer& optimizer) {
  if (variable.weight_decay) return *variable.weight_decay;
  const bool weights = variable.kind == Variable::Kind::kWeights;
  return weights || optimizer.decay_norm_and_bias() ? optimizer.weight_decay() : 0;
}

Segment SegmentOf(const Variable& variable, const config::Optimizer& optimizer) {
  Segment segment{.begin = variable.offset, .end = 0};
  if (variable.kind == Variable::Kind::kStatistic) {
    segment.kind = Segment::Kind::kStatistic;
    segment.statistic_momentum = variable.statistic_momentum;
  } else if (variable.learning_rate_multiplier == 0) {
    segment.kind = Segment::Kind::kFrozen;
  } else {
    segment.weight_decay = DecayOf(variable, optimizer);
    segment.rate_multiplier = variable.learning_rate_multiplier;
  }
  return segment;
}

bool Alike(Segment a, const Segment& b) {
  a.begin = b.begin;
  a.end = b.end;
  return a == b;
}

}  // namespace

std::vector<Segment> CutSegments(std::span<const Variable> variables, size_t arena_floats,
                                 const config::Optimizer& optimizer) {
  MUSTER_CHECK(!variables.empty() && variables.front().offset == 0);
  std::vector<Segment> segments;
  for (const Variable& variable : variables) {
    const Segment segment = SegmentOf(variable, optimizer);
    if (segments.empty() || !Alike(segments.back(), segment)) segments.push_back(segment);
  }
  segments.back().end = arena_floats;
  for (size_t i = 0; i + 1 < segments.size(); ++i) segments[i].end = segments[i + 1].begin;
  return segments;
}

std::span<const Segment>::iterator SegmentAt(std::span<const Segment> segments, size_t at) {
  return std::upper_bound(segments.begin(), segments.end(), at,
                          [](size_t place, const Segment& s) { return place < s.end; });
}

}  // namespace muster
