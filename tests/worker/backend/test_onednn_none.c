/* test_onednn_none.c: placeholder for test_onednn.c in a build without oneDNN, so that the gap is
 * reported as a skipped test. */
#include "tests/gp_test.h"

TEST(the_onednn_segment)
{
    SKIP("this build has no oneDNN with OpenMP (the configure log says why)");
}
