/* test_values.c: a regression network through the command: arrays, training, evaluation,
 * prediction. */
#include "tests/service/commands.h"

enum { SAMPLES = 600, INPUTS = 4 };

/* Write float32 numbers in version 1.0 of the npy format: magic, text length, a Python dictionary
 * padded with blanks to 128 bytes, data. */
static void array_write(const char *name, const float *data, int width)
{
    char header[129];
    FILE *file = fopen(in_w(name), "wb");

    REQUIRE(file != NULL);
    memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10);
    memset(header + 10, ' ', 118);
    int used = snprintf(header + 10, 119, "{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }",
                        SAMPLES, width);

    header[10 + used] = ' ';
    header[127] = '\n';
    fwrite(header, 1, 128, file);
    fwrite(data, sizeof(float), (size_t)(SAMPLES * width), file);
    fclose(file);
}

/* Write x with four numbers in [-1, 1), and y that a small network can learn from x: x0 - x1 and x2
 * / 2. The directory `gap` has the same arrays for training and validation, but the first `missing`
 * training samples have no values. */
static void write_arrays(int missing)
{
    static float x[SAMPLES][INPUTS], y[SAMPLES][2];
    uint32_t state = 12345;

    for (int n = 0; n < SAMPLES; n++) {
        for (int i = 0; i < INPUTS; i++) {
            state = state * 1664525 + 1013904223;
            x[n][i] = (float)(state >> 8) / (float)(1 << 23) - 1;
        }
        y[n][0] = x[n][0] - x[n][1];
        y[n][1] = x[n][2] / 2;
    }
    mkdir(in_w("gap"), 0700);
    array_write("x.npy", x[0], INPUTS);
    array_write("y.npy", y[0], 2);
    array_write("gap/train-x.npy", x[0], INPUTS);
    array_write("gap/val-x.npy", x[0], INPUTS);
    array_write("gap/val-y.npy", y[0], 2);
    for (int n = 0; n < missing; n++)
        y[n][0] = y[n][1] = NAN;
    array_write("gap/train-y.npy", y[0], 2);
}

static double number_after(const char *text, const char *key)
{
    const char *at = strstr(text, key);

    return at == NULL ? NAN : atof(at + strlen(key));
}

TEST(regression_network_is_trained_and_evaluated_by_its_error)
{
    double rmse, first;

    exec_begin();
    write_arrays(3);
    write_file("w/net.json", "{\"name\": \"values\", \"input\": [4, 1, 1], \"layers\": ["
                             "{\"name\": \"fc1\", \"kind\": \"fc\", \"outputs\": 16},"
                             "{\"name\": \"tanh1\", \"kind\": \"tanh\"},"
                             "{\"name\": \"fc2\", \"kind\": \"fc\", \"outputs\": 2},"
                             "{\"name\": \"loss\", \"kind\": \"mse\"}]}");
    RUN_CODE(0, "train", "--network", "net.json", "--data", "x.npy", "--validation-data", "x.npy", "--epochs",
             "20", "--lr", "0.1", "--batch-size", "50", "--plots", "none", "--metrics", "metrics.jsonl",
             "--out", "model.onnx");
    CHECK_CONTAINS(out, "RMSE");
    CHECK(strstr(out, "ccuracy") == NULL);
    RUN_CODE(0, "evaluate", "--model", "model.onnx", "--data", "x.npy", "--json");
    CHECK_CONTAINS(out, "\"accuracy\": null");
    rmse = number_after(out, "\"rmse\": ");
    CHECK(rmse < 0.1); /* the deviation of the values exceeds 0.6 */
    CHECK_NEAR(rmse * rmse, number_after(out, "\"loss\": "), 1e-6);
    RUN_CODE(0, "evaluate", "--model", "model.onnx", "--data", "x.npy");
    CHECK_CONTAINS(out, "RMSE");
    slurp(in_w("metrics.jsonl"), out, sizeof(out));
    first = number_after(out, "\"rmse\": ");
    CHECK(first > 3 * rmse);
    RUN_CODE(0, "predict", "--model", "model.onnx", "--data", "x.npy", "--out", "p.csv");
    slurp(in_w("p.csv"), out, sizeof(out));
    CHECK_CONTAINS(out, "value_0,value_1\n");
    int rows = 0;

    for (const char *at = out; (at = strchr(at, '\n')) != NULL; at++)
        rows++;
    CHECK_INT(SAMPLES + 1, rows);

    RUN_CODE(0, "train", "--network", "net.json", "--data", "gap", "--epochs", "1", "--plots", "none");
    CHECK_CONTAINS(err, "excluded from training: 6 targets without a value\n");
    CHECK(strstr(err, "excluded from validation") == NULL);
    pools_end();
}

TEST(final_weights_with_population_statistics_are_validated_separately)
{
    exec_begin();
    write_arrays(0);
    write_file("w/net.json", "{\"name\": \"values\", \"input\": [4, 1, 1], \"layers\": ["
                             "{\"name\": \"fc1\", \"kind\": \"fc\", \"outputs\": 16},"
                             "{\"name\": \"norm\", \"kind\": \"batchnorm\"},"
                             "{\"name\": \"fc2\", \"kind\": \"fc\", \"outputs\": 2},"
                             "{\"name\": \"loss\", \"kind\": \"mse\"}]}");
    RUN_CODE(0, "train", "--network", "net.json", "--data", "gap", "--epochs", "1", "--batch-size", "300",
             "--batch-norm-statistics", "population", "--metrics", "p.jsonl", "--out", "p.onnx", "--json");
    const double final = number_after(out, "\"validation_loss\": ");

    RUN_CODE(0, "evaluate", "--model", "p.onnx", "--data", "gap", "--json");
    CHECK_NEAR(number_after(out, "\"loss\": "), final, 1e-4 * final);
    slurp(in_w("p.jsonl"), out, sizeof(out));
    const char *first = strstr(out, "validation_loss\": ");

    REQUIRE(first != NULL && strstr(first + 1, "validation_loss\": ") != NULL);
    CHECK_NEAR(number_after(first + 1, "validation_loss\": "), final, 1e-4 * final);
    CHECK(fabs(number_after(first, "validation_loss\": ") - final) > 1e-3 * final);
    pools_end();
}

TEST(training_data_without_values_is_refused_before_a_pool_is_started)
{
    exec_begin();
    write_arrays(SAMPLES);
    write_file("w/net.json", "{\"name\": \"values\", \"input\": [4, 1, 1], \"layers\": ["
                             "{\"name\": \"fc\", \"kind\": \"fc\", \"outputs\": 2},"
                             "{\"name\": \"loss\", \"kind\": \"mse\"}]}");
    RUN_CODE(0, "down");
    RUN_CODE(1, "train", "--network", "net.json", "--data", "gap");
    CHECK_CONTAINS(err, "nothing can be trained: none of the 600 samples of ");
    RUN_CODE(1, "status");
    pools_end();
}
