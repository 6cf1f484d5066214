/* Train LeNet on all workers in the pool, save the model, and measure the accuracy.
 *
 *   cmake -B build && cmake --build build && build/train digits model.onnx */
#include <gradpool/gradpool.h>
#include <stdio.h>

static void on_note(void *context, const char *sentence)
{
    (void)context;
    fprintf(stderr, "%s\n", sentence);
}

static void on_step(void *context, const gp_train_step *step)
{
    (void)context;
    if (step->rank == 0 && step->step % 100 == 0)
        printf("step %5llu  loss %.4f\n", (unsigned long long)step->step, step->loss);
}

static void on_check(void *context, const gp_train_validation_result *check)
{
    (void)context;
    printf("epoch %u  validation accuracy %.4f\n", check->epoch, check->accuracy);
}

int main(int argc, char **argv)
{
    const char *data = argc > 1 ? argv[1] : "digits", *model = argc > 2 ? argv[2] : "model.onnx";
    const char *const options[] = { "max-epochs=2", "mini-batch-size=128", "initial-learn-rate=0.1", NULL };
    gp_train_request train = {
        .network = "lenet", .data = data, .options = options, .events = { .step = on_step, .check = on_check }
    };
    gp_pool *pool = NULL;
    gp_training *training = NULL;
    gp_evaluation result;
    gp_error err = { 0 };
    gp_status status = gp_pool_open(&pool, &(gp_pool_options){ .note = on_note }, &err);

    if (status == GP_OK)
        status = gp_train(&training, pool, &train, &err);
    if (status == GP_OK)
        status = gp_training_save(training, model, &err);
    if (status == GP_OK)
        status = gp_predict(&result, pool, &(gp_predict_request){ .model = model, .data = data }, &err);
    if (status == GP_OK)
        printf("accuracy %.4f on %llu samples\n", result.accuracy, (unsigned long long)result.labelled);
    else
        fprintf(stderr, "train: %s\n", err.message);
    gp_training_free(training);
    gp_pool_close(pool);
    return status == GP_OK ? 0 : 1;
}
