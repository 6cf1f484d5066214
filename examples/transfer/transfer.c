/* Transfer learning on an image folder: split the data, replace the head, train, classify, and
 * compute the confusion matrix.
 *
 *   cmake -B build && cmake --build build && build/transfer SOURCE MODEL.onnx SIZE [EPOCHS]
 *
 * SOURCE: a folder with class folders, a list FILE.csv, or s3://bucket/prefix. SIZE: side of
 * MODEL's square input. The program writes the lists for both parts, the model and the confusion
 * matrix to the current directory. */
#include <gradpool/gradpool.h>
#include <stdio.h>
#include <stdlib.h>

static void on_note(void *context, const char *sentence)
{
    (void)context;
    fprintf(stderr, "%s\n", sentence);
}

static void on_change(void *context, const gp_layer_change *change)
{
    (void)context;
    printf("%s %s (%s)\n", change->action, change->layer, change->settings);
}

static void on_check(void *context, const gp_train_validation_result *check)
{
    (void)context;
    printf("epoch %2u  validation accuracy %.4f, loss %.4f\n", check->epoch, check->accuracy, check->loss);
}

/* Print the first five wrong predictions. */
static bool on_prediction(void *context, const gp_prediction *p)
{
    unsigned *shown = context;

    if (p->label >= 0 && (uint32_t)p->label != p->predicted && (*shown)++ < 5)
        printf("%s was classified as %s (%.2f)\n", p->name, p->class_name, (double)p->scores[p->predicted]);
    return true;
}

/* Train on nine of ten images in each class. The new head has ten times the learning rate. */
static gp_status learn(gp_pool *pool, char **argv, uint32_t larger, gp_error *err)
{
    static const double shares[] = { 0.9 };
    static const char *const lists[] = { "train.csv", "test.csv" };
    char epochs[40], images[60], crop[120];
    const char *const options[] = { epochs,   images, crop, "mini-batch-size=18", "initial-learn-rate=0.003",
                                    "seed=1", NULL };
    gp_train_request request = { .pretrained = argv[2],
                                 .classes = "auto",
                                 .head_learn_rate_factor = { 10, 20 },
                                 .data = lists[0],
                                 .validation_data = lists[1],
                                 .options = options,
                                 .events = { .check = on_check, .change = on_change } };
    gp_training *training = NULL;
    gp_status status = gp_data_split(argv[1], shares, lists, 2, 1, NULL, NULL, err);

    snprintf(epochs, sizeof(epochs), "max-epochs=%s", argv[4] != NULL ? argv[4] : "10");
    snprintf(images, sizeof(images), "image-size=%u,%u", larger, larger);
    snprintf(crop, sizeof(crop), "augment=crop=random crop-size=%s,%s x-reflection=0.5", argv[3], argv[3]);
    if (status == GP_OK)
        status = gp_train(&training, pool, &request, err);
    if (status == GP_OK)
        status = gp_training_save(training, "model.onnx", err);
    gp_training_free(training);
    return status;
}

/* Classify the other images, and compute the confusion matrix. */
static gp_status classify(gp_pool *pool, gp_error *err)
{
    unsigned shown = 0;
    gp_predict_request request = {
        .model = "model.onnx", .data = "test.csv", .on_result = on_prediction, .context = &shown
    };
    gp_evaluation result;
    gp_confusion *confusion = NULL;
    char *text = NULL;
    gp_status status = gp_predict(NULL, pool, &request, err);

    if (status == GP_OK)
        status = gp_evaluate(&result, &confusion, pool, &request, err);
    if (status == GP_OK && confusion == NULL)
        status = gp_fail(err, GP_EINVAL, "the test images have no classes of the model");
    if (status == GP_OK)
        status = gp_confusion_save(confusion, "confusion.png", "CONFUSION", err);
    if (status == GP_OK)
        status = gp_confusion_format(confusion, GP_CONFUSION_TABLE, &text, err);
    if (status == GP_OK)
        printf("accuracy %.4f on %llu images\n%s", result.accuracy, (unsigned long long)result.labelled,
               text);
    gp_buffer_free(text);
    gp_confusion_free(confusion);
    return status;
}

int main(int argc, char **argv)
{
    gp_pool *pool = NULL;
    gp_error err = { 0 };

    if (argc < 4) {
        fprintf(stderr, "usage: transfer SOURCE MODEL.onnx SIZE [EPOCHS]\n");
        return 2;
    }
    const uint32_t size = (uint32_t)atoi(argv[3]), larger = size + size / 8;
    gp_status status = gp_pool_open(&pool, &(gp_pool_options){ .note = on_note }, &err);

    if (status == GP_OK)
        status = learn(pool, argv, larger, &err);
    if (status == GP_OK)
        status = classify(pool, &err);
    if (status != GP_OK)
        fprintf(stderr, "transfer: %s\n", err.message);
    gp_pool_close(pool);
    return status == GP_OK ? 0 : 1;
}
