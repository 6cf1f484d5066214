/* test_cuda_networks.c: plans of four networks use cuDNN for every convolution, and cuBLASLt for
 * every product.
 *
 * The plans run on the host (tests/fake/device.c). For each convolution they ask cuDNN itself,
 * without a GPU, with the recorded properties of an H200. cuBLASLt cannot be asked without a GPU:
 * products only count. test_cuda_device is the same on a GPU. */
#include <stdlib.h>

#include "tests/fake/device_hooks.h"
#include "tests/worker/backend/libraries_check.h"
#include "worker/backend/cuda/libraries/cudnn_conv.h"
#include "worker/backend/cuda/plan/plan.h"

enum { ROWS = 256, KNOWN_MAX = 1000 };

static char properties[4096];

/* Requests for which cuDNN has a plan. */
static char known[KNOWN_MAX][GP_COMPILED_WHAT_BYTES];
static uint32_t known_count;

gp_status gp_fake_conv_ask(const gp_conv_request *asked, gp_error *err)
{
    gp_conv_request request = *asked;
    char what[GP_COMPILED_WHAT_BYTES];
    gp_cudnn_conv *conv;
    size_t workspace;

    request.rows = ROWS;
    gp_cudnn_conv_describe(&request, "by rule", what);
    for (uint32_t i = 0; i < known_count; i++)
        if (strcmp(known[i], what) == 0)
            return GP_OK;
    gp_status status = gp_cudnn_conv_new(&conv, NULL, properties, NULL, &request, NULL, &workspace, err);

    if (status == GP_OK)
        gp_cudnn_conv_free(conv);
    if (status == GP_OK && known_count < KNOWN_MAX)
        snprintf(known[known_count++], sizeof(known[0]), "%s", what);
    return status;
}

static void properties_read(void)
{
    char path[512];

    snprintf(path, sizeof(path), "%s/tests/gpu/h200.json",
             getenv("GP_SOURCE_DIR") == NULL ? "." : getenv("GP_SOURCE_DIR"));
    FILE *file = fopen(path, "r");

    REQUIRE(file != NULL);
    properties[fread(properties, 1, sizeof(properties) - 1, file)] = '\0';
    fclose(file);
}

TEST(libraries_execute_every_convolution_and_product_of_four_networks)
{
    properties_read();
    check_libraries(&gp_backend_cuda);
    printf("     %u convolutions\n", known_count);
    CHECK(known_count > 300);
}
