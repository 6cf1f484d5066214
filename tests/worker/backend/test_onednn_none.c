/* Stands in for test_onednn.c in a build that has no oneDNN, so that the gap is counted and said. */
#include "tests/gp_test.h"

TEST(the_onednn_segment)
{
    SKIP("this build has no oneDNN with OpenMP (the configure log says why)");
}
