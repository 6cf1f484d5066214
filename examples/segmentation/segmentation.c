/* Train DeepLab v3+ on random patches, predict each pixel's class in windows, and compute the
 * confusion matrix.
 *
 *   cmake -B build && cmake --build build
 *   build/segmentation SOURCE [NETWORK PATCH PATCHES EPOCHS BATCH]
 *
 * SOURCE: images with label images. The program writes to the current directory: the model, the
 * confusion matrix as an image, and for each test image NAME.pgm with the pixel classes. */
#include <gradpool/gradpool.h>
#include <stdio.h>
#include <string.h>

static void on_note(void *context, const char *sentence)
{
    (void)context;
    fprintf(stderr, "%s\n", sentence);
}

static void on_check(void *context, const gp_train_validation_result *check)
{
    (void)context;
    printf("epoch %2u  validation accuracy %.4f, loss %.4f\n", check->epoch, check->accuracy, check->loss);
}

/* Write the pixel classes for one image as a PGM file. `dims` has the class count, and the height
 * and width of the image as stored. */
static bool on_prediction(void *context, const gp_prediction *p)
{
    const char *slash = strrchr(p->name, '/');
    char path[300];
    FILE *file;

    (void)context;
    snprintf(path, sizeof(path), "%.280s.pgm", slash == NULL ? p->name : slash + 1);
    file = fopen(path, "wb");
    if (file == NULL || p->pixels == NULL)
        return false;
    fprintf(file, "P5\n%u %u\n255\n", (unsigned)p->dims[2], (unsigned)p->dims[1]);
    for (uint64_t i = 0; i < p->dims[1] * p->dims[2]; i++)
        fputc(p->pixels[i], file);
    return fclose(file) == 0;
}

/* Train the network and save it as model.onnx. */
static gp_status learn(gp_pool *pool, const char *const *argv, gp_error *err)
{
    char augment[200], epochs[40], batch[40];
    const char *const options[] = { augment,
                                    epochs,
                                    batch,
                                    "class-weights=auto",
                                    "initial-learn-rate=0.03",
                                    "learn-rate-schedule=piecewise",
                                    "learn-rate-drop-period=3",
                                    "learn-rate-drop-factor=0.2",
                                    "momentum=0.9",
                                    "l2-regularization=0.001",
                                    "shuffle=every-epoch",
                                    "validation-patience=4",
                                    "checkpoint-path=checkpoints",
                                    "resume=auto",
                                    NULL };
    gp_train_request request = { .network = argv[2],
                                 .data = argv[1],
                                 .options = options,
                                 .events = { .check = on_check, .note = on_note } };
    gp_training *training = NULL;

    snprintf(augment, sizeof(augment),
             "augment=crop=random crop-size=%s,%s patches-per-image=%s rotation=-20,20 x-translation=-10,10 "
             "y-translation=-10,10",
             argv[3], argv[3], argv[4]);
    snprintf(epochs, sizeof(epochs), "max-epochs=%s", argv[5]);
    snprintf(batch, sizeof(batch), "mini-batch-size=%s", argv[6]);
    gp_status status = gp_train(&training, pool, &request, err);

    if (status == GP_OK)
        status = gp_training_save(training, "model.onnx", err);
    gp_training_free(training);
    return status;
}

/* Predict the test images, and print and save the metrics. */
static gp_status count(gp_pool *pool, const char *source, gp_error *err)
{
    gp_predict_request request = {
        .model = "model.onnx", .data = source, .pixel_classes = true, .on_result = on_prediction
    };
    gp_confusion *confusion = NULL;
    gp_evaluation result;
    gp_status status = gp_predict(NULL, pool, &request, err);

    if (status == GP_OK)
        status = gp_evaluate(&result, &confusion, pool, &request, err);
    if (status == GP_OK && confusion == NULL)
        status = gp_fail(err, GP_EINVAL, "%s has no test images with classes of the model", source);
    if (status == GP_OK)
        status = gp_confusion_save(confusion, "confusion.png", "PIXELS", err);
    if (status == GP_OK) {
        const gp_metrics metrics = gp_confusion_metrics(confusion);

        printf("accuracy %.4f, mean accuracy %.4f, mean IoU %.4f, weighted IoU %.4f of %llu pixels\n",
               metrics.accuracy, metrics.mean_accuracy, metrics.mean_iou, metrics.weighted_iou,
               (unsigned long long)metrics.count);
    }
    gp_confusion_free(confusion);
    return status;
}

int main(int argc, char **argv)
{
    const char *seed[] = { NULL,  NULL,   "deeplabv3plus:backbone=inceptionresnetv2,output-stride=16",
                           "512", "1500", "10",
                           "20" };
    gp_pool *pool = NULL;
    gp_error err = { 0 };

    if (argc < 2 || argc > 7) {
        fprintf(stderr, "usage: segmentation SOURCE [NETWORK PATCH PATCHES EPOCHS BATCH]\n");
        return 2;
    }
    for (int i = 1; i < argc; i++)
        seed[i] = argv[i];
    gp_status status = gp_pool_open(&pool, &(gp_pool_options){ .note = on_note }, &err);

    if (status == GP_OK)
        status = learn(pool, seed, &err);
    if (status == GP_OK)
        status = count(pool, seed[1], &err);
    if (status != GP_OK)
        fprintf(stderr, "segmentation: %s\n", err.message);
    gp_pool_close(pool);
    return status == GP_OK ? 0 : 1;
}
