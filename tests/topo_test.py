"""`hanji topo`: the graph of this host as text, JSON and drawing, measured and nominal."""
import json
import unittest
import xml.etree.ElementTree

from command import CommandTest


class Topo(CommandTest):
    def test_text_json_and_drawing_show_the_same_vertices(self):
        drawing = self.folder / "host.svg"
        graph = json.loads(self.hanji("topo", "--json", "--svg", drawing).stdout)
        text = self.hanji("topo").stdout
        drawn = {one.get("id") for one in xml.etree.ElementTree.parse(drawing).iter()}
        ids = [vertex["id"] for vertex in graph["vertices"]]
        self.assertEqual(len(ids), len(set(ids)))
        self.assertLessEqual({"machine", "core:0"}, set(ids))
        for vertex in graph["vertices"]:
            self.assertIn(vertex["id"], drawn)
            self.assertIn(vertex["name"], text)
        for link in graph["links"]:
            self.assertLessEqual({link["from"], link["to"]}, set(ids))
            if link["kind"] != "inside":
                self.assertTrue(link["bytes_per_second"] or link["unknown"], link)
        self.assertEqual([one["kind"] for one in graph["gpu_direct"]], ["P2P", "RDMA", "GDRCopy"])
        self.assertIsNone(graph["measured"])

    def test_measured_within_its_time(self):
        graph = json.loads(self.hanji("topo", "--measure", "--json").stdout)
        measured, gpu = graph["measured"], graph["measured_gpu"]
        self.assertTrue(gpu.get("unknown") or gpu["bf16_flops"], gpu)
        self.assertLess(measured["seconds"], 20)
        cores = [one["num_copies"] for one in measured["copies"]]
        self.assertEqual(cores[:8], list(range(1, min(len(cores), 8) + 1)))
        if not measured["copies"][0]["bytes_per_second"]:  # on a machine that others hold for so long
            self.assertGreaterEqual(measured["seconds"], 4, measured["copies"][0])
        for one in measured["copies"] + measured["pairs"]:
            self.assertEqual(bool(one["bytes_per_second"]), not one["unknown"], one)
        self.assertGreater(measured["buffer_bytes"], 0)
        for one in measured["contention"]["rows"]:
            self.assertEqual(bool(one["ratio"]), not one["unknown"], one)
        done = self.hanji("topo", "--measure")
        self.assertIn("measuring cores, links and the first GPU, at most", done.stderr)
        text = done.stdout
        self.assertIn("2 x loopback TCP", text)
        for one in measured["pairs"]:
            self.assertRegex(text, r"CPUs {} and {}: flag ".format(*one["cpus"]))
        self.assertIn("GPU not measured: " + gpu["unknown"] if "unknown" in gpu else "GPU measured on ", text)

    def test_nominal(self):
        links = {one["name"]: one for one in json.loads(self.hanji("topo", "--nominal", "--json").stdout)}
        self.assertAlmostEqual(links["PCIe 5 x16"]["bytes_per_second"] / 63.015e9, 1, places=4)
        self.assertEqual(links["NVLink 4 x18 (H100)"]["duplex_bytes_per_second"], 900e9)
        self.assertIn("NVLink 4 x18 (H100)", self.hanji("topo", "--nominal").stdout)

    def test_what_is_not_understood_is_refused(self):
        for arguments in (["--nonsense"], ["--svg"], ["--nominal", "--measure"], ["word"]):
            done = self.hanji("topo", *arguments, expect=2)
            self.assertEqual(done.stdout, "")
        self.hanji("topo", "--svg", self.folder / "no" / "folder.svg", expect=2)


if __name__ == "__main__":
    unittest.main()
