"""With pycoral: detect_coral.py DETECTOR CLASSIFIER LABELS PICTURE.npy"""

import sys
from typing import Any

import numpy as np
from pycoral.adapters import classify, common, detect
from pycoral.utils.dataset import read_label_file
from pycoral.utils.edgetpu import list_edge_tpus, make_interpreter

detector_file, classifier_file, label_file, picture_file = sys.argv[1:]
print("Edge TPUs:", len(list_edge_tpus()))
labels = read_label_file(label_file)
picture = np.load(picture_file)
height, width, _ = picture.shape


def resized(size: Any) -> Any:
    """The picture in another size, by its nearest pixels."""
    rows = np.arange(size[1]) * height // size[1]
    columns = np.arange(size[0]) * width // size[0]
    return picture[rows][:, columns]


detector = make_interpreter(detector_file)
detector.allocate_tensors()
_, scale = common.set_resized_input(detector, (width, height), resized)
detector.invoke()
for found in detect.get_objects(detector, 0.6, scale):
    box = found.bbox
    name = labels.get(found.id, found.id)
    print(f"{name} {found.score:.4f}", box.xmin, box.ymin, box.xmax, box.ymax)

classifier = make_interpreter(classifier_file)
classifier.allocate_tensors()
common.set_input(classifier, resized(common.input_size(classifier)))
for _ in range(3):
    classifier.invoke()
for best in classify.get_classes(classifier, top_k=3, score_threshold=0.1):
    print(f"{labels.get(best.id, best.id)}: {best.score:.5f}")
