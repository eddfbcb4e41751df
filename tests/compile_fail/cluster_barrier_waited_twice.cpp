// expect: no matching|discards qualifiers|cannot bind|this. argument
// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/pipeline/cluster.h"
using namespace cgp::dsl;
void f(Cta& cta) {
  auto arrived = cluster_arrive(cta);
  arrived.wait(cta);
}
